# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared file systems: mounting, serving and verifying them.

units, mounts                    mounts of a host, and conflicts with them
device, exports, service         serving over NFS
lustre, lnet, lustre_health      the Lustre client; its packages: lustre_packages
rounds, proof, probe, bounded    write and read test

`options` lists the parts; `file_system` reads the compiled model.
"""
