"""Print the seconds of one first call in this interpreter: cold.py NETWORK CONTENDER THREADS."""

from __future__ import annotations

import sys

import torch
from contenders import contenders
from timing import seconds

if __name__ == "__main__":
    network, contender, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    print(seconds(contenders(network)[contender]()))
