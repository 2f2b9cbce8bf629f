# The bridge in a container: it runs without root and without a shell, and writes to its state only.
# docs/docker.md explains how to build and run it.
# The console is a target of its own: --target console. docs/console.md explains how to run it.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ARG EXTRAS=""
# With a time given, bytecode does not depend on when it was made: the same commit, the same image.
ARG SOURCE_DATE_EPOCH
ENV PYTHONHASHSEED=0
WORKDIR /src
# The final image gets this environment only, without pip and without the build tools.
RUN ["python", "-m", "venv", "--without-pip", "/opt/seb"]
COPY requirements.lock requirements-azure-identity.lock requirements-kubernetes.lock ./
RUN python -m pip --python /opt/seb/bin/python --disable-pip-version-check install --no-cache-dir \
    --only-binary=:all: --require-hashes -r "requirements${EXTRAS:+-$EXTRAS}.lock"
COPY requirements-build.lock ./
RUN python -m pip --disable-pip-version-check install --no-cache-dir --target /backend \
    --only-binary=:all: --require-hashes -r requirements-build.lock
COPY pyproject.toml README.md LICENSE ./
COPY bridge bridge
COPY sinks sinks
COPY wire wire
RUN PYTHONPATH=/backend python -m pip --disable-pip-version-check wheel --no-cache-dir --no-deps \
    --no-build-isolation --wheel-dir /wheels . \
 && python -m pip --python /opt/seb/bin/python --disable-pip-version-check install --no-cache-dir \
    --no-deps --no-index /wheels/*.whl

# The console: the same environment, with what the extra of that name needs.
FROM build AS build-console
ARG SOURCE_DATE_EPOCH
COPY requirements-console.lock ./
RUN python -m pip --python /opt/seb/bin/python --disable-pip-version-check install --no-cache-dir \
    --only-binary=:all: --require-hashes -r requirements-console.lock
COPY console console
RUN PYTHONPATH=/backend python -m pip --disable-pip-version-check wheel --no-cache-dir --no-deps \
    --no-build-isolation --wheel-dir /wheels-console . \
 && python -m pip --python /opt/seb/bin/python --disable-pip-version-check install --no-cache-dir \
    --no-deps --no-index --force-reinstall /wheels-console/*.whl

FROM python:${PYTHON}-slim AS console
LABEL org.opencontainers.image.title="scheduled-events-console" \
      org.opencontainers.image.description="Shows what Azure Scheduled Events are coming to a fleet, and which VMs are silent" \
      org.opencontainers.image.licenses="MIT"
RUN ["install", "-d", "-o", "65532", "-g", "65532", "-m", "0700", "/var/lib/scheduled-events-console"]
COPY --from=build-console /opt/seb /opt/seb
ENV PATH=/opt/seb/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    SEB_CONSOLE_STATE_DIR=/var/lib/scheduled-events-console
USER 65532:65532
VOLUME /var/lib/scheduled-events-console
# Whether the process answers. A source or a database that is away is nothing that a restart would mend.
HEALTHCHECK --interval=60s --timeout=15s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('SEB_CONSOLE_LISTEN', ':9470').rpartition(':')[2] + '/healthz', timeout=10)"]
ENTRYPOINT ["seb"]
CMD ["console", "run"]

# The bridge: the last stage is what is built unless another is asked for.
FROM python:${PYTHON}-slim
LABEL org.opencontainers.image.title="scheduled-events-bridge" \
      org.opencontainers.image.description="Delivers Azure Scheduled Events from each VM to Event Hubs, MQTT, webhooks and more" \
      org.opencontainers.image.licenses="MIT"
# A new volume gets the owner and the mode of this directory.
RUN ["install", "-d", "-o", "65532", "-g", "65532", "-m", "0700", "/var/lib/scheduled-events-bridge"]
COPY --from=build /opt/seb /opt/seb
# Python writes no bytecode, and a crash reports where each thread was.
ENV PATH=/opt/seb/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONFAULTHANDLER=1 \
    SEB_STATE_DIR=/var/lib/scheduled-events-bridge
USER 65532:65532
VOLUME /var/lib/scheduled-events-bridge
# Whether the poll loop works. It does not fail for an unreachable metadata service or sink, which a
# restart would not help.
HEALTHCHECK --interval=60s --timeout=15s --start-period=30s --retries=3 \
    CMD ["seb", "status", "--alive"]
ENTRYPOINT ["seb"]
CMD ["run"]
