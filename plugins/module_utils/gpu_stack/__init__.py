# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver and what belongs to it on one node, one subject per file.

request     what is asked for, validated
kernel      the kernel of the node, read through a root
suitable    machines on which this driver must not be installed, and what to do
nouveau     the driver that has to make way
bindings    the Python file with which the node asks NVML
users       who uses the GPUs
packages    the packages of the set, with the services stopped that they would break
driver      what DKMS built, and which module runs
boot        modules that are loaded at boot
cuda        the toolkit for every login and for the linker
units       names of the services
services    persistence, fabric manager, DCGM
health      every GPU, by the package `gpu`
pause       what was stopped and has to start again
cause       the finding that hides later ones
stack       all of it put together
"""
