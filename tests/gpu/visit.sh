#!/usr/bin/env bash
# All that can be learnt on a machine with a real GPU, in nine minutes and without a network:
#
#     bash tests/gpu/visit.sh OUT
#
# writes at most eight files into OUT, which python -m tests.gpu.report OUT makes tables of. It needs
# nvidia-smi and a python3 that has PyTorch; what else it needs comes from the wheels in .whl beside it
# (python -m tests.gpu.wheels). It ends only processes that it has started, and changes no setting.
set -u
out=${1:?usage: bash tests/gpu/visit.sh OUT}
shift
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
cd "$(dirname "$0")/../.." || exit 2
export PIP_DISABLE_PIP_VERSION_CHECK=1

python=python3
if compgen -G 'tests/gpu/.whl/*.whl' >/dev/null; then
    # An environment of its own: the tests start programs without PYTHONPATH. What the machine's
    # python3 has, PyTorch above all, comes after the wheels.
    environment=$(mktemp -d)
    trap 'rm -rf "$environment"' EXIT
    chmod 755 "$environment"
    python3 -m venv --without-pip "$environment" || exit 2
    where='import sysconfig; print(sysconfig.get_path("purelib"))'
    own=$("$environment/bin/python3" -c "$where")
    echo "import site; site.addsitedir('$(python3 -c "$where")')" >"$own/machine.pth"
    install() {
        python3 -m pip install -q --root-user-action=ignore --no-index --no-deps --no-compile \
            --no-cache-dir --upgrade --target "$own" "$@"
    }
    # One that does not fit is no reason to do without the others.
    install tests/gpu/.whl/*.whl || for wheel in tests/gpu/.whl/*.whl; do
        install "$wheel" || echo "cannot use ${wheel##*/}" >&2
    done
    python=$environment/bin/python3
fi
"$python" -m tests.gpu.visit "$out" "$@"
