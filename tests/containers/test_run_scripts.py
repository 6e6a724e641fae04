# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The run scripts and programs of a container stack under a real Apptainer, without a batch system."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest
from support import apptainer_image, slurm_cluster
from support.container_stack import Stack
from support.polling import eventually

SAY_TORCH = "import torch; print(torch.__version__)"
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


@pytest.fixture(name="stack", scope="module")
def one_stack(small_image, tmp_path_factory):
    return Stack(tmp_path_factory.mktemp("s") / "stack", small_image())


@pytest.fixture()
def alone(stack, tmp_path):
    """Run the only rank of a program; what it left on the node is there while it runs."""
    port = str(slurm_cluster.free_ports(1)[0])

    def run(*arguments, text=None, **variables):
        given = {**ALONE, "MASTER_PORT": port, "TORCHSTACK_NODE_TMP": str(tmp_path), **variables}
        return stack.run(stack.runscripts / "conda-python-distributed", *arguments, text=text, variables=given)

    return run


def sentences(done):
    """What was said on standard error, without Apptainer's own."""
    return [line for line in done.stderr.splitlines() if not line.startswith(("INFO:", "WARNING:"))]


@pytest.mark.parametrize("module", [True, False])
def test_s35_python_is_that_of_the_images_environment(stack, module):
    for program in (stack.runscripts / "conda-python-simple", stack.programs / "python3", stack.programs / "python"):
        done = stack.run(program, "-c", SAY_TORCH, module=module)
        assert (done.returncode, done.stdout, sentences(done)) == (0, "2.2.0\n", [])


def test_s35_inside_the_container_the_scripts_are_on_its_path(stack):
    done = stack.run("singularity", "exec", stack.image, "conda-python-simple", "-c", SAY_TORCH)
    assert (done.returncode, done.stdout) == (0, "2.2.0\n"), done.stderr
    done = stack.run("singularity", "exec", stack.image, "get-master", "r[0-1]n[04-05],login")
    assert (done.returncode, done.stdout) == (0, "r0n04\n"), done.stderr


def test_s35_input_arguments_and_exit_code_are_those_of_the_program(stack, alone):
    program = "import sys; print(sys.stdin.read() + sys.argv[1]); sys.exit(3)"
    for done in (
        stack.run(stack.runscripts / "conda-python-simple", "-c", program, "a  'b'\n", text="in, "),
        alone("-c", program, "a  'b'\n", text="in, "),
    ):
        assert (done.returncode, done.stdout) == (3, "in, a  'b'\n\n")
    who = "rank 0 of 1 on " + os.uname().nodename
    assert sentences(done)[-1] == "conda-python-distributed: %s ended with exit code 3." % who


@pytest.mark.parametrize("module", [True, False])
def test_s34_what_a_user_binds_for_apptainer_does_not_take_the_stacks_own_away(stack, module):
    show = "import os; print(os.path.isfile('/runscripts/get-master'), os.path.isdir('/data'))"
    done = stack.run(stack.programs / "python3", "-c", show, module=module, variables={"APPTAINER_BIND": "/opt:/data"})
    assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr


def test_s35_an_image_without_conda_has_its_own_python(stack):
    done = stack.run(
        stack.runscripts / "conda-python-simple", "-c", "import sys; print(sys.prefix)",
        variables={"SINGULARITYENV_WITH_CONDA": ""})
    assert (done.returncode, done.stdout) == (0, "/usr\n"), done.stderr


def test_s35_without_a_launcher_one_sentence_says_how_to_start(stack):
    done = stack.run(stack.runscripts / "conda-python-distributed", "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (2, "")
    (sentence,) = sentences(done)
    assert "srun" in sentence and "conda-python-simple" in sentence


def test_s35_without_its_image_a_script_says_what_to_do(stack, tmp_path):
    done = stack.run(stack.programs / "python3", variables={"SIF": str(tmp_path / "gone.sif")})
    assert (done.returncode, sentences(done)) == (
        1, ["python3: there is no image %s: load the module again." % (tmp_path / "gone.sif")])


def test_s35_a_rank_sees_one_gpu_or_all_of_them(alone):
    show = ("-c", "import os; print(os.environ['ROCR_VISIBLE_DEVICES'], os.environ['LOCAL_RANK'])")
    second = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "", "MASTER_ADDR": "elsewhere"}
    quickly = {"TORCHSTACK_GPU_WAKE": "", "TORCHSTACK_NODE_WAIT": "0"}
    assert alone(*show, ROCR_VISIBLE_DEVICES="4,6").stdout == "4 0\n"
    assert alone(*show, ROCR_VISIBLE_DEVICES="4,6", TORCHSTACK_VISIBLE_GPUS="all").stdout == "4,6 0\n"
    done = alone(*show, **second, **quickly)
    assert "waited 0 seconds for local rank 0" in sentences(done)[-1], done.stderr


def test_s36_a_taken_port_is_said_before_the_program_starts(alone):
    with socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        taken = listener.getsockname()[1]
        done = alone("-c", "print('hello')", MASTER_PORT=str(taken))
    assert (done.returncode, done.stdout) == (1, "")
    assert "port %d is not free there" % taken in sentences(done)[-1]
    assert "set MASTER_PORT to another one" in sentences(done)[-1]


def test_s36_ones_own_address_and_port_win(alone):
    show = "import os; print(os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'])"
    assert alone("-c", show, MASTER_ADDR="store", MASTER_PORT="1").stdout == "store 1\n"


@pytest.mark.parametrize(("program", "warning"), [
    (None, "goes on without waking the GPUs: there is no rocm-smi in the image."),
    ("echo first; echo no driver >&2; exit 9", "goes on although rocm-smi ended with exit code 9: no driver"),
])
def test_s38_gpus_that_do_not_wake_are_a_warning(stack, alone, program, warning):
    waker = stack.runscripts / "rocm-smi"
    if program:
        waker.write_text("#!/bin/bash\n%s\n" % program)
        waker.chmod(0o755)
    try:
        done = alone("-c", "print('hello')")
    finally:
        if program:
            waker.unlink()
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert sentences(done)[0].endswith(warning)


def test_s38_caches_of_ones_own_stay(alone, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    show = (
        "import os; print(os.environ['MIOPEN_USER_DB_PATH']); print(os.listdir(os.environ['MIOPEN_CUSTOM_CACHE_DIR']))"
    )
    done = alone("-c", show, MIOPEN_USER_DB_PATH=str(mine))
    assert (done.returncode, done.stdout) == (0, "%s\n[]\n" % mine), done.stderr
    assert list(tmp_path.iterdir()) == [mine]


def test_s38_a_signal_reaches_the_program_once_and_its_exit_code_comes_back(stack, tmp_path):
    program = (
        "import os, signal, sys, time\n"
        "got = []\n"
        # A handler that printed would fail while the print below it has not returned.
        "signal.signal(signal.SIGUSR1, lambda *_: got.append('usr1'))\n"
        "signal.signal(signal.SIGTERM, lambda *_: got.append('term'))\n"
        "print('ready', flush=True)\n"
        "while not got: time.sleep(0.01)\n"
        "print('got it', flush=True)\n"
        "while 'term' not in got: time.sleep(0.01)\n"
        "print(got, flush=True)\n"
        "sys.exit(5)\n"
    )
    environment = {
        **stack.environment(), **ALONE, "MASTER_PORT": str(slurm_cluster.free_ports(1)[0]),
        "TORCHSTACK_NODE_TMP": str(tmp_path),
    }
    process = subprocess.Popen(
        [stack.runscripts / "conda-python-distributed", "-c", program], env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    assert list(tmp_path.iterdir())
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "got it\n"
    process.send_signal(signal.SIGTERM)
    assert process.stdout.read() == "['usr1', 'term']\n"
    assert process.wait() == 5
    eventually(lambda: not list(tmp_path.iterdir()), "the caches are gone")


def test_without_apptainer_the_tests_are_skipped_and_say_how_to_install_it(monkeypatch, tmp_path):
    monkeypatch.setattr(apptainer_image, "PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="sudo tests/machine install"):
        apptainer_image.apptainer()


def test_s34_a_shell_has_the_environment_and_the_virtual_one_on_top(small_image, tmp_path):
    stack = Stack(tmp_path / "stack", small_image(), venv="pytorch")
    (stack.place / "user-software").mkdir()
    venv = "/user-software/venv/pytorch"
    which = [stack.programs / "start-shell", "-c", "type -P python; python -c 'import torch'"]
    # Without the module, the scripts bind what its modulefile would.
    words = ("-m", "venv", "--system-site-packages", "--without-pip", venv)
    made = stack.run(stack.runscripts / "conda-python-simple", *words, module=False)
    assert made.returncode == 0, made.stderr
    for command in ([], ["make-squashfs"], ["unmake-squashfs"], ["make-squashfs", "--keep"]):
        if command:
            done = stack.run(stack.programs / command[0], *command[1:], module=False)
            assert (done.returncode, sentences(done)) == (0, [])
            left = sorted(path.name for path in stack.place.iterdir() if path.name.startswith("user-software"))
            assert left == {
                "make-squashfs": ["user-software.squashfs"], "unmake-squashfs": ["user-software"],
                "make-squashfs --keep": ["user-software", "user-software.squashfs"],
            }[" ".join(command)]
        done = stack.run(*which, module=False)
        assert (done.returncode, done.stdout) == (0, venv + "/bin/python\n"), done.stderr
    done = stack.run(*which, module=False, variables={"TORCHSTACK_VENV": ""})
    assert done.stdout == "/opt/miniconda3/envs/pytorch/bin/python\n"
