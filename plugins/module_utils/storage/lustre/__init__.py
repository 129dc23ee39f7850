# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The client of Lustre: packages, LNet, options of mounts, stripe defaults, health of servers.

settings        `shared_storage_lustre`, as one value
source          NIDs, and what a file system is mounted from
client          all of it as parts of a node, and of them the packages
lnet            LNet as it is configured and as it runs, and the kernel that it runs in
health          whether servers and targets answer
"""
