docker run --gpus all example.com/trainer:1
nerdctl run -e NVIDIA_VISIBLE_DEVICES=all example.com/trainer:1
