# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Draft a model from machines that rdma_facts has read, or compare them with a model.

machines      one machine as read, and the majority of all machines
differences   each machine compared with the majority, or with its model
plan          names, positions and addresses of a draft
draft         its text, with a comment on every value that no machine reported
"""
