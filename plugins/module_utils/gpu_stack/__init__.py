# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver and what belongs to it on one node, one subject per file.

shared      what the parts have in common: kernel, services, what is stopped, what hides findings
suitable    machines on which this driver must not be installed, and what to do
users       processes that use the GPUs
packages    the packages of the set, with the services stopped that they would break
modules     nouveau kept away, what DKMS built, which module runs, modules loaded at boot
cuda        the toolkit for every login and for the linker
services    persistence, fabric manager, DCGM
health      every GPU, by the package `gpu`
stack       all of it put together
"""
