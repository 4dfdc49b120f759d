#!/usr/bin/env bash
# One GRPO step on one GPU: what bench_check.py has the doctor read as a launch script.
set -euo pipefail
export HF_HUB_OFFLINE=1
export VLLM_LOGGING_LEVEL=INFO
model=${MODEL:-/tmp/job/model}
python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  data.train_files=/tmp/job/train.parquet data.val_files=/tmp/job/train.parquet \
  data.train_batch_size=8 data.max_prompt_length=256 data.max_response_length=128 \
  actor_rollout_ref.model.path="$model" \
  actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=4 \
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4 \
  actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 \
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1 \
  trainer.logger='["console"]' trainer.n_gpus_per_node=1 trainer.nnodes=1 trainer.total_training_steps=1
