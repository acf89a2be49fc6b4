"""A set of asyncio tasks that nobody empties."""

import asyncio

tasks = set()


async def handle(step):
    body = [str(number) * 8 for number in range(3_500)]  # LEAK
    await asyncio.sleep(0)
    return body


async def main():
    for step in range(250):
        tasks.add(asyncio.create_task(handle(step)))
        await asyncio.sleep(0.01)
    await asyncio.sleep(2)


asyncio.run(main())
