# If the slice exists, it is used:
gcloud compute tpus queued-resources describe toy-small-v5e-8 --zone=z --format=json --quiet
# Else:
gcloud compute tpus queued-resources create toy-small-v5e-8 --zone=z --node-id=toy-small-v5e-8 --accelerator-type=v5litepod-8 --runtime-version=v2-alpha-tpuv5-lite --quiet
# Until it is ACTIVE, every 60 s:
gcloud compute tpus queued-resources describe toy-small-v5e-8 --zone=z --format=json --quiet
# runs/tpu_vm/toy-small-v5e-8.tar.gz holds all files that git does not ignore.
gcloud compute tpus tpu-vm scp runs/tpu_vm/toy-small-v5e-8.tar.gz toy-small-v5e-8:rmc_jax.tar.gz --worker=all --zone=z --scp-flag=-oServerAliveInterval=30 --scp-flag=-oConnectTimeout=20 --quiet
gcloud compute tpus tpu-vm ssh toy-small-v5e-8 --zone=z --worker=all --ssh-flag=-oServerAliveInterval=30 --ssh-flag=-oConnectTimeout=20 '--command=set -eu
mkdir -p rmc_jax rmc_jax_job rmc_jax_work
if ! flock --nonblock rmc_jax_job/lock true; then
  echo '"'"'a run is active here; keeping its code'"'"'
  exit
fi
rm -f rmc_jax_job/attempt
find rmc_jax -mindepth 1 -maxdepth 1 ! -name '"'"'.venv*'"'"' -exec rm -rf {} +
tar -xzf rmc_jax.tar.gz -C rmc_jax
apt() {
  sudo DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >/dev/null
}
# The TPU images have an older Python.
if ! rmc_jax/launch/find_python.sh 3.11 3.14 >/dev/null; then
  sudo add-apt-repository -y ppa:deadsnakes/ppa >/dev/null
  apt update
  apt install -y python3.12-venv
fi
ACCELERATOR=tpu rmc_jax/launch/setup.sh
' --quiet
gcloud compute tpus tpu-vm ssh toy-small-v5e-8 --zone=z --worker=all --ssh-flag=-oServerAliveInterval=30 --ssh-flag=-oConnectTimeout=20 '--command=set -eu
set -- -P -m experiments.toy.train --preset=small
attempt=1
ended() { echo "rmc_jax: attempt $attempt on $(hostname) ended with $1"; }
cd rmc_jax_job
lines=10
exec 9>>lock
if [ "$(cat attempt flags 2>/dev/null)" != "$attempt
$*" ]; then
  if flock --nonblock 9; then
    mkdir -p ../rmc_jax_work/runs
    rm -f code pid
    echo "$*" >flags
    echo "$attempt" >attempt
    : >log  # Must exist before it is followed.
    lines=+1
    # shellcheck disable=SC2016
    setsid sh -c '"'"'
      trap : TERM  # Outlive the trainer to write its exit code.
      sh -c "echo \$\$ >pid; cd ../rmc_jax_work; exec \"\$@\"" trainer "$@"
      echo $? >code
    '"'"' wrapper env PYTHONPATH="$HOME/rmc_jax" \
      "$HOME/rmc_jax/.venv/bin/python" "$@" >>log 2>&1 </dev/null &
    echo $! >wrapper
  elif [ "$(cat flags)" = "$*" ]; then
    echo "$attempt" >attempt  # Started by an earlier launcher.
  else
    echo "another run is active here: $(cat flags)"
    ended 77
    exit
  fi
fi
exec 9>&-
worker=$(hostname)
if ! flock --nonblock lock true; then
  tail --pid="$(cat wrapper)" -s 0.2 -n "$lines" -f log
else
  tail -n "$lines" log
fi | sed -u "s/^/[${worker##*-}] /"
ended "$(cat code 2>/dev/null || echo 75)"
' --quiet
# Meanwhile, every 60 s; if the machines are gone, delete the
# slice, create it again and continue:
gcloud compute tpus queued-resources describe toy-small-v5e-8 --zone=z --format=json --quiet
gcloud compute tpus tpu-vm describe toy-small-v5e-8 --zone=z --format=json --quiet
gcloud compute tpus tpu-vm scp toy-small-v5e-8:rmc_jax_work/runs . --recurse --zone=z --scp-flag=-oServerAliveInterval=30 --scp-flag=-oConnectTimeout=20 --quiet
gcloud compute tpus queued-resources delete toy-small-v5e-8 --zone=z --force --quiet
