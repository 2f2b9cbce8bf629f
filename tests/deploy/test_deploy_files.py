"""The files in deploy/: valid for the tools that read them, and doing what their pages promise."""

from __future__ import annotations

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from support.ground.doc_page import blocks
from support.process.bridge import run_seb

from release import sbom

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / "build" / "deploy-tools"
SCRIPTS = ROOT / "release" / "files" / "windows"
VM = "3f6a1c1e-8d55-4c0b-9a3e-5b1f0c7d2e90"
OTHER = "0b0c7d2e-8d55-4c0b-9a3e-5b1f3f6a1c1e"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="they run where Linux is managed")


def tool(name: str) -> str:
    """A program of `make deploy-tools`, or the test is skipped."""
    found = TOOLS / "bin" / name
    if not found.exists():
        pytest.skip(f"needs {name}; make deploy-tools installs it")
    return str(found)


def program(name: str) -> str:
    """A program of the system, or the test is skipped."""
    path = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    if not (found := shutil.which(name, path=path)):
        pytest.skip(f"needs {name}")
    return found


def test_ansible_lint_finds_nothing(tmp_path: Path) -> None:
    """The role and the playbooks keep the rules of its production profile."""
    lint = tool("ansible-lint")
    folder = shutil.copytree(DEPLOY / "ansible", tmp_path / "ansible")
    environment = {
        **os.environ,
        "PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    done = subprocess.run(
        [lint, "--offline", "--profile", "production", "--nocolor", "."],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=110,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_secret_of_the_page_is_an_entry_of_the_inventory(tmp_path: Path) -> None:
    """What the page's command prints has the secret's name, and Ansible decrypts it."""
    vault = tool("ansible-vault")
    (command,) = (
        each.text for each in blocks("docs/rollout.md", "sh") if "ansible-vault" in each.text
    )
    (tmp_path / "password").write_text("of-the-vault")
    environment = {
        **os.environ,
        "PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "ANSIBLE_VAULT_PASSWORD_FILE": str(tmp_path / "password"),
    }
    done = subprocess.run(
        ["sh", "-c", command.replace("ansible-vault", vault)],
        input="s3cret\n", env=environment, capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(
        "all:\n  vars:\n    seb_secrets:\n" + textwrap.indent(done.stdout, " " * 6)
    )
    words = ["localhost", "-i", str(inventory), "-m", "debug", "-a", "var=seb_secrets"]
    shown = subprocess.run(
        [tool("ansible"), *words],
        env=environment, capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    assert '"SINK__MQTT__PASSWORD": "s3cret\\n"' in shown.stdout, shown.stdout


def test_the_settings_that_the_role_writes(tmp_path: Path) -> None:
    """Those of the example inventory are valid; booleans and rules come out as seb reads them."""
    inventory = yaml.safe_load((DEPLOY / "ansible" / "inventory.example.yml").read_text())
    settings = {
        **inventory["seb"]["vars"]["seb_settings"],
        "SINK__STDOUT__AFFECTS_THIS_VM_ONLY": True,
    }
    environment = jinja2.Environment(trim_blocks=True, autoescape=False)
    environment.filters["to_json"] = json.dumps
    template = DEPLOY / "ansible" / "roles" / "seb" / "templates" / "seb.env.j2"
    text = environment.from_string(template.read_text()).render(
        seb_settings=settings,
        seb_environment={"HTTPS_PROXY": "http://proxy.example:3128"},
        seb_enrolment="SEB_SINK__CONSOLE__KIND=webhook\nSEB_SINK__CONSOLE__URL=https://c.example/x",
        ansible_managed="managed",
    )
    lines = dict(line.split("=", 1) for line in text.splitlines() if line.startswith("SEB_"))
    assert lines["SEB_SINK__STDOUT__AFFECTS_THIS_VM_ONLY"] == "true"
    assert "\nHTTPS_PROXY=http://proxy.example:3128\n" in text
    result = run_seb("config", "show", home=tmp_path, env=lines)
    assert result.code == 0, result.err
    assert "own-reboots" in result.out
    assert "SEB_SINK__CONSOLE__KIND=webhook" in result.out


def cloud_config(url: str = "https://x.example/seb.deb", digest: str = "0" * 64) -> Any:
    """The cloud-config, with its placeholders filled in."""
    text = (DEPLOY / "cloud-init" / "seb.yaml").read_text()
    values = {
        "<PACKAGE_URL>": url,
        "<PACKAGE_SHA256>": digest,
        "<SITE>": "weu",
        "<NAMESPACE>": "seb-weu",
    }
    for name, value in values.items():
        text = text.replace(name, value)
    return yaml.safe_load(text)


def test_cloud_init_takes_the_file() -> None:
    """It is valid by the schema that cloud-init itself ships."""
    found = sorted(TOOLS.glob("cloud-init/**/schema-cloud-config-v1.json"))
    if not found:
        pytest.skip("needs the schema of cloud-init; make deploy-tools unpacks it")
    import jsonschema  # noqa: PLC0415

    jsonschema.Draft4Validator(json.loads(found[0].read_text())).validate(cloud_config())


def test_the_settings_of_cloud_init(tmp_path: Path) -> None:
    """They are valid settings."""
    (file,) = (each for each in cloud_config()["write_files"] if each["path"] == "/etc/seb/seb.env")
    lines = dict(line.split("=", 1) for line in file["content"].splitlines())
    assert file["permissions"] == "0600"
    result = run_seb("config", "show", home=tmp_path, env=lines)
    assert result.code == 0, result.err


@pytest.fixture
def package(tmp_path: Path) -> Iterator[str]:
    """The address of a package."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"package")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/seb.deb"
        server.shutdown()


@pytest.mark.parametrize("good", [True, False])
def test_what_cloud_init_installs(good: bool, package: str, tmp_path: Path) -> None:
    """The package with the sum that was written down, and nothing at all with another."""
    program("curl")
    digest = sha256(b"package" if good else b"another").hexdigest()
    config = cloud_config(package, digest)
    (file,) = (each for each in config["write_files"] if each["path"] in config["runcmd"][0])
    for name in ("apt-get", "systemctl"):
        fake = tmp_path / name
        fake.write_text(f'#!/bin/sh\necho "{name} $1 $2" >> "{tmp_path}/calls"\n')
        fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", file["content"]], env={"PATH": path}, capture_output=True, check=False
    )
    calls = tmp_path / "calls"
    made = calls.read_text().splitlines() if calls.exists() else []
    assert (done.returncode == 0) is good, done.stderr
    waits = "apt-get --option DPkg::Lock::Timeout=900"
    assert made == ([waits, "systemctl enable --now"] if good else [])


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("azure/*.bicep")), ids=lambda path: path.name)
def test_bicep_can_be_read(path: Path) -> None:
    """By a parser of the language; what it declares is what the comment above asks for."""
    code = (
        "import json, pathlib, pycep, sys\n"
        "tree = pycep.BicepParser().parse(file_path=pathlib.Path(sys.argv[1]))\n"
        "print(json.dumps(list(tree['parameters'])))"
    )
    call = [tool("python"), "-c", code, str(path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    comment = "".join(line for line in path.read_text().splitlines() if line.startswith("//"))
    asked = set(re.findall(r"\b([a-zA-Z]+)='?<?", comment.partition("--parameters")[2]))
    assert asked
    assert asked <= set(json.loads(done.stdout))


def test_what_the_vm_application_does(tmp_path: Path) -> None:
    """It installs first; settings that `seb check` refuses never become seb.env; lines of the VM's
    own are added to the fleet's.
    """
    text = (DEPLOY / "azure" / "vm-application.bicep").read_text()
    variables = dict(re.findall(r"^var (\w+) = '(.*)'$", text, re.MULTILINE))
    script = "set -e; " + "; ".join(variables[each] for each in ("putDeb", "settings", "start"))
    etc = tmp_path / "etc" / "seb"
    (etc / "files").mkdir(parents=True)
    (etc / "seb.env").write_text("SEB_SITE=before\n")
    (etc / "vm.env").write_text("SEB_SINK__CONSOLE__URL=https://c.example\n")
    for name in ("apt-get", "systemctl", "systemd-run"):
        fake = tmp_path / name
        fake.write_text(
            f'#!/bin/sh\necho {name} >> "{tmp_path}/calls"\n'
            f'[ {name} != systemd-run ] || ! grep -q WRONG "{etc}/seb.env.new"\n'
        )
        fake.chmod(0o755)
    script = script.replace("/etc/seb", str(etc)).replace("-g seb ", "")

    def install(site: str) -> int:
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        (work / "seb.env").write_text(f"SEB_SITE={site}\n")
        (work / "trust.jwks").write_text("{}")
        subprocess.run(
            ["tar", "-cf", "settings.tar", "seb.env", "trust.jwks"], cwd=work, check=True
        )
        path = f"{tmp_path}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", script], cwd=work, env={"PATH": path}, check=False)
        return done.returncode

    assert install("WRONG") != 0
    assert (etc / "seb.env").read_text() == "SEB_SITE=before\n"
    assert install("weu") == 0
    lines = (etc / "seb.env").read_text().splitlines()
    assert lines == ["SEB_SITE=weu", "SEB_SINK__CONSOLE__URL=https://c.example"]
    assert (etc / "files" / "trust.jwks").read_text() == "{}"
    calls = (tmp_path / "calls").read_text().split()
    assert calls == ["apt-get", "systemd-run", "apt-get", "systemd-run", *["systemctl"] * 2]


def test_bicep_escapes_what_it_must() -> None:
    """A string that begins with a bracket is escaped by Bicep itself: a second time is wrong."""
    for path in DEPLOY.glob("azure/*.bicep"):
        assert "'[[" not in path.read_text(), path.name


@pytest.mark.parametrize("path", sorted(SCRIPTS.glob("*.ps1")), ids=lambda path: path.name)
def test_powershell_can_be_read(path: Path) -> None:
    """By a grammar of the language: no error and nothing missing in the whole file."""
    code = (
        "import sys, tree_sitter as t, tree_sitter_powershell as p\n"
        "tree = t.Parser(t.Language(p.language())).parse(open(sys.argv[1], 'rb').read())\n"
        "sys.exit(tree.root_node.has_error and str(tree.root_node)[:2000])"
    )
    done = subprocess.run(
        [tool("python"), "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_sbom_is_valid_cyclonedx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the schema that the CycloneDX project ships."""
    component = sbom.Component(
        name="x", version="1", licence="MIT", purl="pkg:pypi/x@1", sha256="0" * 64
    )
    path = tmp_path / "x.cdx.json"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    path.write_text(sbom.document("scheduled-events-bridge", "1.2.3", [component]))
    code = (
        "import sys\n"
        "from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "text = open(sys.argv[1]).read()\n"
        "sys.exit(str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) or '') or 0)"
    )
    call = [tool("python"), "-c", code, str(path)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def issue(folder: Path, ids: str, *days: str) -> subprocess.CompletedProcess[str]:
    """What issue-certificates.sh says and does."""
    return subprocess.run(
        ["sh", str(DEPLOY / "identity" / "issue-certificates.sh"), str(folder), *days],
        input=ids, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_certificates_are_issued_and_renewed(tmp_path: Path) -> None:
    """Each VM gets one of the same authority; one that lasts is kept, one that ends is renewed."""
    openssl = program("openssl")
    assert issue(tmp_path, f"{VM}\n").stdout == f"issued {VM}\n"
    first = (tmp_path / f"{VM}.pem").read_text()
    assert issue(tmp_path, f"{VM}\n{OTHER}\n").stdout == f"issued {OTHER}\n"
    assert issue(tmp_path, f"{VM}\n", "400").stdout == f"issued {VM}\n"
    assert (tmp_path / f"{VM}.pem").read_text() != first
    for each in (VM, OTHER):
        result = subprocess.run(
            [openssl, "verify", "-purpose", "sslclient", "-CAfile", "ca.pem", f"{each}.pem"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert result.stdout == f"{each}.pem: OK\n"
        name = subprocess.run(
            [openssl, "x509", "-in", f"{each}.pem", "-noout", "-subject"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert each in name.stdout
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("*.key")} == {0}


def test_the_page_calls_the_scripts_like_that() -> None:
    """docs/rollout.md has the words with which these tests call them."""
    page = [each.text for each in blocks("docs/rollout.md", "sh")]
    assert "deploy/identity/issue-certificates.sh certificates 90 < vms.txt\n" in page
    users = "sudo deploy/identity/mosquitto-passwords.sh mqtt-passwords < vms.txt\n"
    assert [each for each in page if each.startswith(users)]


def test_what_is_no_vm_gets_no_certificate(tmp_path: Path) -> None:
    """A name that is not an id, and a path, end the script before anything is made of them."""
    program("openssl")
    for text in ("vm-web-01\n", "../../etc/x\n", "\n"):
        done = issue(tmp_path, text)
        assert (done.returncode, done.stdout) == (1, "")
        assert "not the id of a VM" in done.stderr


def test_users_of_mosquitto_are_made_once(tmp_path: Path) -> None:
    """Each VM gets a password of its own; a second call changes none, and others stay."""
    program("mosquitto_passwd")
    passwd, folder = tmp_path / "passwd", tmp_path / "passwords"
    passwd.write_text("control:$7$101$abc$def\n")

    def make(ids: str) -> None:
        subprocess.run(
            ["sh", str(DEPLOY / "identity" / "mosquitto-passwords.sh"), str(folder)],
            input=ids, text=True, check=True, capture_output=True,
            env={**os.environ, "PASSWD": str(passwd)},
        )  # fmt: skip

    make(f"{VM}\n")
    first = passwd.read_text()
    make(f"{VM} web-01\n{OTHER}\n")
    lines = passwd.read_text().splitlines()
    assert [line.split(":")[0] for line in lines] == ["control", VM, OTHER]
    assert "\n".join(lines[:2]) + "\n" == first
    assert sorted(path.name for path in folder.iterdir()) == sorted((VM, OTHER))
    assert (folder / VM).read_text() not in passwd.read_text()
    assert len((folder / VM).read_text()) == 64
