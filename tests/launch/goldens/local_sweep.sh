env PYTHONPATH=/checkout GLIBC_TUNABLES=glibc.malloc.hugetlb=1 taskset --cpu-list 0,1 /checkout/.venv/bin/python -P -m experiments.toy.train --preset=small --seed=0 --workdir=runs/toy-seeds/seed_0
env PYTHONPATH=/checkout GLIBC_TUNABLES=glibc.malloc.hugetlb=1 taskset --cpu-list 2,3 /checkout/.venv/bin/python -P -m experiments.toy.train --preset=small --seed=1 --workdir=runs/toy-seeds/seed_1
env PYTHONPATH=/checkout GLIBC_TUNABLES=glibc.malloc.hugetlb=1 taskset --cpu-list 0,1,2,3 /checkout/.venv/bin/python -P -m experiments.toy.analysis runs/toy-seeds/seed_0 runs/toy-seeds/seed_1
