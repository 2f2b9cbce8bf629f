#!/usr/bin/env bash
# Builds CPython for the Linux program: build.sh SOURCES WORK ARCH GLIBC, with zig on the PATH.
#
# SOURCES holds the unpacked source packages. zig's compiler links against any glibc that it is told
# to, so the result starts on systems that are older than the builder's. OpenSSL, SQLite, zlib and
# libffi are linked in: nothing of the target system is needed but glibc. The tree is in WORK/out.
set -euo pipefail
sources=$1 work=$2 arch=$3 glibc=$4
prefix=$work/prefix
mkdir -p "$work/bin" "$prefix/include" "$prefix/lib"
export ZIG_GLOBAL_CACHE_DIR=$work/zig ZIG_LOCAL_CACHE_DIR=$work/zig

# Debug information and macros of time would carry this machine into the result.
printf '#!/bin/sh\nexec zig cc -target %s-linux-gnu.%s -fno-sanitize=undefined "$@"\n' "$arch" "$glibc" > "$work/bin/cc"
for tool in ar ranlib; do printf '#!/bin/sh\nexec zig %s "$@"\n' $tool > "$work/bin/$tool"; done
chmod +x "$work"/bin/*
export CC=$work/bin/cc AR=$work/bin/ar RANLIB=$work/bin/ranlib
export CFLAGS="-O2 -g0 -fPIC -ffile-prefix-map=$work=." LDFLAGS=-Wl,-s

take() { rm -rf "${work:?}/$1"; cp -r "$sources/$1" "$work/$1"; cd "$work/$1"; }
# Of Debian's patches those that mend, not those that fit the software into Debian's directories.
patches() { grep -E "$1" debian/patches/series | while read -r name; do patch -s -p1 < "debian/patches/$name"; done; }

take zlib
./configure --static --prefix="$prefix" > ../zlib.log
make -j2 libz.a >> ../zlib.log
make install >> ../zlib.log

take sqlite3
patches '^(41|5[0-9])-'
CC=cc CFLAGS=-O1 LDFLAGS='' ./configure > ../sqlite3.log 2>&1   # only to put its files into one
make sqlite3.c sqlite3.h >> ../sqlite3.log 2>&1
cp sqlite3.h "$prefix/include"
"$CC" $CFLAGS -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -w -c sqlite3.c -o sqlite3.o
"$AR" rcs "$prefix/lib/libsqlite3.a" sqlite3.o

take openssl
patches .
./Configure "linux-$arch" no-shared no-module no-tests no-apps no-docs no-engine no-quic no-cmp no-srp \
  --prefix="$prefix" --openssldir=/etc/ssl --libdir=lib > ../openssl.log
make -j2 build_libs >> ../openssl.log 2>&1
make install_dev >> ../openssl.log 2>&1

# For ctypes, through which psycopg and others look for libraries.
take libffi
sed -i '/^LT_SYS_SYMBOL_USCORE$/d' configure.ac   # ELF puts no underscore before names; the macro is in libltdl
autoreconf -fi > ../libffi.log 2>&1
./configure --disable-shared --enable-static --disable-docs --disable-multi-os-directory \
  --host="$arch-linux-gnu" --prefix="$prefix" --libdir="$prefix/lib" >> ../libffi.log 2>&1
make -j2 >> ../libffi.log 2>&1
make install >> ../libffi.log 2>&1

take python3.13
patches '^(CVE-|ssl-|dict-use-after-free|traverse-managed-dicts)'
sed -i '1i #define DATE "unknown"\n#define TIME "unknown"' Modules/getbuildinfo.c
unused=()
for module in _tkinter _curses _curses_panel readline _dbm _gdbm _bz2 _lzma _uuid; do
  unused+=("py_cv_module_$module=n/a")
done
./configure --prefix=/python --with-openssl="$prefix" --without-ensurepip --disable-test-modules \
  --with-pkg-config=no --without-readline "${unused[@]}" \
  LIBFFI_CFLAGS="-I$prefix/include" LIBFFI_LIBS="-L$prefix/lib -lffi" \
  ZLIB_CFLAGS="-I$prefix/include" ZLIB_LIBS="-L$prefix/lib -lz" \
  LIBSQLITE3_CFLAGS="-I$prefix/include" LIBSQLITE3_LIBS="-L$prefix/lib -lsqlite3 -lm" > ../python.log 2>&1
make -j2 >> ../python.log 2>&1
rm -rf "$work/out"
make install DESTDIR="$work/out" >> ../python.log 2>&1
cp LICENSE "$work/out/python/LICENSE-python.txt"
cp ../openssl/LICENSE.txt "$work/out/python/LICENSE-openssl.txt"
cp ../libffi/LICENSE "$work/out/python/LICENSE-libffi.txt"
