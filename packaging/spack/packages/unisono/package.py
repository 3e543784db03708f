"""Recipe for Spack: `spack repo add packaging/spack && spack install unisono`."""

from spack.package import *


class Unisono(PythonPackage):
    """Collective communication where every algorithm is a plan."""

    license("Apache-2.0")

    version("main", branch="main")

    variant("cuda", default=False, description="Compile the GPU kernels")

    depends_on("cxx", type="build")
    depends_on("python@3.11:", type=("build", "link", "run"))
    depends_on("py-scikit-build-core@0.11:", type="build")
    depends_on("py-nanobind@2.7:", type="build")
    depends_on("cmake@3.22:", type="build")
    depends_on("ninja@1.11:", type="build")
    depends_on("cuda@12.8:", type="build", when="+cuda")
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-rich@13:", type=("build", "run"))
    depends_on("py-typer@0.15:", type=("build", "run"))
    depends_on("openssl", type="run")

    conflicts("%gcc@:11", msg="C++20 needs GCC 12 or newer")

    def config_settings(self, spec, prefix):
        """What pip hands to scikit-build-core."""
        return {"cmake.define.UNISONO_CUDA": "ON" if spec.satisfies("+cuda") else "OFF"}
