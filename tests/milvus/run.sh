#!/usr/bin/env bash
# tests/milvus/run.sh BUILD DEPS: the tests of collections in Milvus, with the real server. `make milvus-test` calls it.
#
# Milvus listens on all addresses, whatever its configuration says. In a network of its own, where the system allows one, nobody
# else reaches it.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$1 deps=$2
tests=(env "RETRO_BUILD=$build" "RETRO_DEPS=$deps" "RETRO_MILVUS=$deps/milvus"
    "$deps/venv/bin/python" -m pytest -q -p no:cacheprovider tests/http/test_milvus.py "${@:3}")
own=(unshare --net)
[ "$(id -u)" = 0 ] || own=(unshare --user --map-root-user --net)
if "${own[@]}" true 2> /dev/null; then
    # The loopback interface of a new network is down.
    exec "${own[@]}" "$deps/venv/bin/python" -c '
import fcntl, os, socket, struct, sys
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
with socket.socket() as s:
    fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))
os.execvp(sys.argv[1], sys.argv[1:])' "${tests[@]}"
fi
echo "no network of its own is allowed here: while the tests run, Milvus is open to other machines on ports 19530 and 9091"
exec "${tests[@]}"
