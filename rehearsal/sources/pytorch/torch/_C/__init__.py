# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The libraries of the stand-in, called as the extension module of PyTorch does."""

import ctypes
import os
import pathlib

_LIB = pathlib.Path(__file__).parents[1] / "lib"


def _load(name):
    path = _LIB / name
    return ctypes.CDLL(str(path), mode=os.RTLD_GLOBAL | os.RTLD_NOW) if path.exists() else None


def _text(function):
    function.restype = ctypes.c_char_p
    return function().decode()


_c10, _cpu, _cuda = _load("libc10.so"), _load("libtorch_cpu.so"), _load("libtorch_cuda.so")
_has_mpi = hasattr(_cpu, "torch_mpi_library")
_has_gloo, _has_numpy = bool(_cpu.torch_has_gloo()), bool(_cpu.torch_has_numpy())
_has_nccl = _cuda is not None and hasattr(_cuda, "torch_nccl_version")


def _show_config():
    return _text(_cpu.torch_config)


def _cuda_getArchFlags():
    return _text(_cuda.torch_cuda_arch_flags) if _cuda is not None else None


def _nccl_version():
    if not _has_nccl:
        raise AttributeError("this build has no NCCL")
    return int(_cuda.torch_nccl_version())


def _cudnn_version():
    return (_cuda.torch_cudnn_version() or None) if _cuda is not None else None


def _mpi_library():
    return _text(_cpu.torch_mpi_library) if _has_mpi else None


def _mpi_takes_gpu_buffers():
    return bool(_cpu.torch_mpi_takes_gpu_buffers()) if _has_mpi else False
