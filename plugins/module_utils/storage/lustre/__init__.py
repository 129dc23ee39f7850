# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The client of Lustre: packages, LNet, options of mounts, stripe defaults, health of servers.

settings       how a node is a client, as one value; keys, rules and reading make it
nid, source    networks and addresses of LNet, and what a file system is mounted from
packages       the client's packages, by distribution
lnet           LNet as it is configured (lnet_file) and as it runs (lnet_state)
left           LNet on a host that has no file system of Lustre any more
stripes        where new files of a directory are spread
health         whether servers and targets answer (targets: what the client tells of them)
kernel         where sys and proc are read: this machine, or a stand-in
parts          all of it as parts of a node
"""
