# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host of the cluster that serves file systems by NFS: device, directory, exports, the server."""
