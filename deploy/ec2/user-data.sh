#!/bin/bash
# User data of an EC2 instance (Debian 12, with NVIDIA's driver) that joins imgd by itself, and holds no secret: the instance
# shows its identity document, and knows imgd by its CA's hash. docs/install.md, Nodes on EC2, has imgd's side of it.
set -euo pipefail

SERVER=gpu-head.example.internal:7650
CA_HASH=sha256:0000000000000000000000000000000000000000000000000000000000000000 # imgd's log has it at its start (sha256=...)
PACKAGES=s3://example-bucket/imgd                                               # imgagent, imgtrain, imgtrain-runtime-cu13

apt-get update
apt-get install -y awscli nfs-common
aws s3 cp --recursive "$PACKAGES" /tmp/imgd
apt-get install -y /tmp/imgd/*.deb

# For data and checkpoints, where they are not in S3:
# mkdir -p /shared && mount -t nfs4 fs-0123456789abcdef0.efs.us-east-1.amazonaws.com:/ /shared

cat >/etc/imgd/agent.yaml <<EOF
server: $SERVER
join: ec2
ca_hash: $CA_HASH
# shared_folders: [/shared]
EOF
systemctl restart imgagent
