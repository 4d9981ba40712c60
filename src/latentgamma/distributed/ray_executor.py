"""`RayExecutor`: Ray behind the interface of `concurrent.futures`."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import wait as futures_wait
from typing import Any, TypeVar, final

from latentgamma._errors import ArgumentError, DistributedError

T = TypeVar("T")

#: A worker that dies is replaced, and its task is computed again, so many times.
_RETRIES = 5
#: Bytes of shared memory of a cluster that is started here: tasks return little.
_SHARED_MEMORY = 256 << 20
#: Arguments of these types are sent with each task.
_SMALL = (str, bytes, int, float, bool, type(None), os.PathLike)


@final
class RayExecutor(Executor):
    """An executor whose tasks run on a Ray cluster.

    It can be given to `close_parquet` and to `fit`. A worker that is killed is replaced, and what
    it was computing is computed again. Leaving the `with` block stops a cluster that was started
    by it, and leaves one that was there.

    Args:
        workers: start a cluster on this machine with so many processes.
        address: connect to a cluster: "auto", or "ray://host:port". Without `workers` and
            `address` the cluster that this process is connected to is used, or one is started with
            a process for each processor.

    Raises:
        ArgumentError: ray is not installed, or both arguments are given.
        DistributedError: there is no cluster at this address.
    """

    def __init__(self, workers: int | None = None, *, address: str | None = None) -> None:
        if workers is not None and address is not None:
            raise ArgumentError(
                "pass workers= to start a cluster, or address= to use one, not both"
            )
        if workers is not None and workers < 1:
            raise ArgumentError(f"workers must be at least 1, not {workers}")
        try:
            import ray
        except ImportError:
            raise ArgumentError("RayExecutor needs ray; pip install ray pyarrow") from None
        self._ray = ray
        self._open: set[Future[Any]] = set()
        self._before: tuple[Any, ...] = ()
        self._shared: dict[int, tuple[Any, Any]] = {}
        self._started = not ray.is_initialized()
        if not self._started and (workers is not None or address is not None):
            raise ArgumentError(
                "this process is connected to a cluster already; use RayExecutor() without arguments"
            )
        if self._started:
            _connect(ray, workers, address)
        self._run = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """The future result of `fn(*args, **kwargs)`, computed in the cluster."""
        references = [self._reference(argument) for argument in args]
        self._before = args
        task = self._run.remote(fn, *references, **kwargs)
        found: Future[T] = Future()
        self._open.add(found)

        def finish(done: Future[T]) -> None:
            if not found.set_running_or_notify_cancel():
                return
            error = done.exception()
            if error is None:
                found.set_result(done.result())
            else:
                found.set_exception(self._plain(error))

        def close(done: Future[T]) -> None:
            self._open.discard(done)
            if done.cancelled() and self._ray.is_initialized():
                self._ray.cancel(task)

        found.add_done_callback(close)
        task.future().add_done_callback(finish)
        return found

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the tasks, or cancel them, and stop the cluster if it was started here."""
        for future in [*self._open] if cancel_futures else []:
            future.cancel()
        if wait:
            futures_wait([*self._open])
        self._before = ()
        self._shared.clear()
        if self._started and self._ray.is_initialized():
            self._ray.shutdown()

    def _reference(self, argument: Any) -> Any:
        """The argument, or a reference to it if the task before had the same: it is sent once."""
        if isinstance(argument, _SMALL) or not any(argument is x for x in self._before):
            return argument
        known = self._shared.get(id(argument))
        if known is None or known[0] is not argument:
            known = self._shared[id(argument)] = argument, self._ray.put(argument)
        return known[1]

    def _plain(self, error: BaseException) -> BaseException:
        """The exception that the task raised, or that a worker was lost."""
        errors = self._ray.exceptions
        if isinstance(error, errors.RayTaskError):
            cause: BaseException = error.cause
            return cause
        if isinstance(error, errors.RayError):
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            return DistributedError(f"a worker of the cluster was lost for good: {reason}")
        return error


def _connect(ray: Any, workers: int | None, address: str | None) -> None:
    options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
    if address is None:
        options |= {"include_dashboard": False, "object_store_memory": _SHARED_MEMORY}
        options |= {} if workers is None else {"num_cpus": workers}
        # Without "local" Ray would look for a running cluster first.
        address = "local"
    try:
        ray.init(address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DistributedError(f"cannot connect to a Ray cluster: {reason}") from None


def _call(fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return fn(*args, **kwargs)
