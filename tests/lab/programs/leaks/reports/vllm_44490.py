"""vllm-project/vllm#44490: the ids of new blocks are collected for a connector that would take
them, and there is none."""

import time


class BlockPool:
    def __init__(self, count):
        self.free = [(number, f"block {number}") for number in range(count)]

    def get_new_blocks(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def give_back(self, blocks):
        self.free.extend(blocks)


class KVCacheManager:
    def __init__(self):
        self.pool = BlockPool(20_000)
        self.new_block_ids = []

    def allocate_slots(self, request, count):
        blocks = self.pool.get_new_blocks(count)
        self.new_block_ids.append([f"{request}:{number}" for number, _ in blocks])  # LEAK
        return blocks

    def take_new_block_ids(self):
        taken, self.new_block_ids = self.new_block_ids, []
        return taken


manager, connector = KVCacheManager(), None
for step in range(300):
    for request in range(8):
        blocks = manager.allocate_slots(f"{step}-{request}", 500)
        manager.pool.give_back(blocks)
    if connector:
        connector.send(manager.take_new_block_ids())
    time.sleep(0.01)
time.sleep(2)
