"""The installed libraries as a project of one's own meets them: its adapter, verified by the installed
tool; a broken copy of it, caught, explained and replayed from the file alone; and a test suite.

Usage: check_installed.py SOURCE_ROOT BUILD_ROOT COMPILER...
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

source, build = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
compiler = sys.argv[3:]

SUITE = """
#include <gtest/gtest.h>
#include <lockstep/kit/check.hpp>
#include "{backend}.cpp"

TEST(MyBackend, KeepsTheContract) {{
  MyBackend backend;
  const auto result = lockstep::kit::check(backend, {{.verify = {{.most_ranks = 3, .cases = 500}}}});
  EXPECT_TRUE(result.holds) << result.report;
}}
"""


def run(*command, status=0, **environment):
    done = subprocess.run(command, cwd=work, env={**env, **environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != status:
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}, expected {status}:\n{done.stdout}")
    return done.stdout


def expect(text, *wanted):
    for words in wanted:
        if words not in text:
            sys.exit(f"expected {words!r} in\n{text}")


with tempfile.TemporaryDirectory() as directory:
    work = pathlib.Path(directory)
    stage = work / "stage"
    env = dict(os.environ)
    run("meson", "install", "-C", str(build), "--no-rebuild", "--destdir", str(stage))
    pc = next(stage.rglob("lockstep-kit.pc"))
    libraries = pc.parent.parent
    env |= {"PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(stage),
            "LD_LIBRARY_PATH": str(libraries)}
    flags = run("pkg-config", "--cflags", "--libs", "lockstep-kit", "lockstep-sim").split()
    lockstep = str(next(stage.rglob("bin/lockstep")))

    def compiled(name, *more):
        run(*compiler, "-std=c++20", "-O0", *more, *flags)
        return name

    # The adapter that the README shows, and a copy whose communicator forgets the root.
    adapter = (source / "examples" / "my_backend.cpp").read_text()
    (work / "right.cpp").write_text(adapter)
    broken = adapter.replace("SubjectOf<mine::Communicator> subject(communicator)",
                             "SubjectOf<Forgetful> subject(Forgetful{communicator})")
    assert broken != adapter
    broken = broken.replace("class MyBackend", """
struct Forgetful : mine::Communicator {
  lockstep::FloatTensor broadcast_float(const lockstep::FloatTensor& x, std::int64_t) const {
    return mine::Communicator::broadcast_float(x, 0);
  }
};

class MyBackend""", 1)
    (work / "broken.cpp").write_text(broken)
    for name in ("right", "broken"):
        compiled(name, "-shared", "-fPIC", f"{name}.cpp", "-o", f"{name}.so")

    few = ("--ranks", "1..3", "--cases", "1000", "--seed", "1")
    expect(run(lockstep, "verify", "--backend", "./right.so", *few), "Conformance of mine")
    told = run(lockstep, "verify", "--backend", "./broken.so", *few, status=1)
    expect(told, "broken       broadcast_float", "A world of 2, one step:", "expected", "received")
    file = re.search(r"\S*lockstep-broadcast_float-\S*\.json", told).group()
    expect(run(lockstep, "replay", "--backend", "./broken.so", file, status=1), "differs from the oracle")
    expect(run(lockstep, "replay", "--backend", "./right.so", file), "holds")

    # The same in a suite. Its file holds what was received.
    if "--no-suite" not in sys.argv:
        (work / "suite.cpp").write_text(SUITE.format(backend="broken"))
        compiled("suite", "suite.cpp", "-o", "suite", "-lgtest_main", "-lgtest", "-lpthread")
        told = run("./suite", status=1)
        expect(told, "Broken: broadcast_float", "A world of 2, one step:", "lockstep replay ")
        file = re.search(r"lockstep replay (\S*broadcast_float\S*\.json)", told).group(1)
        expect(run(lockstep, "replay", file, status=1), "mine differed from the oracle when it was recorded")
        expect(run(lockstep, "replay", "--backend", "./right.so", file), "holds")
        expect(run("./suite", status=1, LOCKSTEP_CASE=file), "mine differs from the oracle")
