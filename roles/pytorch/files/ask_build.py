"""Ask the installed PyTorch what it was built with; the answers go as JSON into the file that the argument names."""

import importlib.metadata
import json
import sys

import torch


def nccl_version():
    """That of the NCCL which this process has loaded, or None."""
    try:
        return [number for number in torch.cuda.nccl.version() if isinstance(number, int)]
    except Exception:  # what it is depends on the version, where there is no NCCL
        return None


def architectures():
    """What the GPU code was compiled for; torch.cuda.get_arch_list() says nothing of it where there is no GPU."""
    flags = getattr(torch._C, "_cuda_getArchFlags", torch.cuda.get_arch_list)()
    return flags.split() if isinstance(flags, str) else flags or []


def takes_arrays():
    """Whether a tensor is made of an array of NumPy; None where there is no NumPy."""
    try:
        import numpy
    except ImportError:
        return None
    try:
        return torch.from_numpy(numpy.zeros(2)).numel() == 2
    except Exception:  # what it is depends on the version, where PyTorch was built without
        return False


def main(path):
    distributed = torch.distributed.is_available()
    found = {
        "version": torch.__version__,
        "distribution": importlib.metadata.version("torch"),
        "file": torch.__file__,
        "cuda": torch.version.cuda,
        "git_version": getattr(torch.version, "git_version", None),
        "config": torch.__config__.show(),
        "mpi": distributed and torch.distributed.is_mpi_available(),
        "gloo": distributed and torch.distributed.is_gloo_available(),
        "numpy": takes_arrays(),
        "nccl": nccl_version(),
        "architectures": architectures(),
        "cudnn": torch.backends.cudnn.version(),
        "path": sys.path,
    }
    with open(path, "w") as stream:
        json.dump(found, stream, indent=2, sort_keys=True)


if __name__ == "__main__":
    main(sys.argv[1])
