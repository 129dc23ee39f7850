# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From machines that were read by rdma_facts to a draft of their model, and to what differs.

machines      one machine as it was read, and what most of them have in common
differences   each machine against the others, or against its model
plan          what a draft says: names, places, addresses
draft         its text, with a comment where no machine could tell
"""
