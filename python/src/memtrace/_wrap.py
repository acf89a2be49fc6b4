"""Runs a function inside a context manager, whatever kind of function it is."""

import functools
from contextlib import AbstractContextManager
from typing import Any, Callable, TypeVar, cast

from . import _recorder

F = TypeVar("F", bound=Callable[..., Any])


def wrapped(
    function: F, section: Callable[[], AbstractContextManager[Any]], *, is_always: bool = False
) -> F:
    """`function`, each call of which happens within its own `section()`.

    A coroutine's section lasts until it returns, a generator's from its first item until
    it is exhausted or closed. While no recorder runs, the function is just called, but for
    `is_always`.
    """
    import inspect

    if isinstance(function, staticmethod):
        raise TypeError("put @staticmethod above this decorator, not below it")
    if not callable(function) or inspect.isclass(function):
        raise TypeError(
            f"{function!r} is not a function; for a class, take its __init__ or another method"
        )
    wrapper: Callable[..., Any]
    if inspect.iscoroutinefunction(function):
        wrapper = _coroutine(function, section)
    elif inspect.isasyncgenfunction(function):
        wrapper = _async_generator(function, section)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(function, section)
    else:
        wrapper = _plain(function, section, is_always)
    return cast(F, functools.wraps(function)(wrapper))


def _plain(
    function: Callable[..., Any],
    section: Callable[[], AbstractContextManager[Any]],
    is_always: bool,
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if _recorder.active is None and not is_always:
            return function(*args, **kwargs)
        with section():
            return function(*args, **kwargs)

    return call


def _coroutine(
    function: Callable[..., Any], section: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        with section():
            return await function(*args, **kwargs)

    return call


def _generator(
    function: Callable[..., Any], section: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with section():
            return (yield from function(*args, **kwargs))

    return call


def _async_generator(
    function: Callable[..., Any], section: Callable[[], AbstractContextManager[Any]]
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        with section():
            # There is no `yield from` for these: what is sent or thrown in goes on by hand.
            items = function(*args, **kwargs)
            try:
                item = await items.__anext__()
                while True:
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await items.aclose()
                        raise
                    except BaseException as error:
                        item = await items.athrow(error)
                    else:
                        item = await items.asend(sent)
            except StopAsyncIteration:
                return

    return call
