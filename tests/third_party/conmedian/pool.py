"""An engine over a process pool: sites travel with each question, so keep rows in files."""

import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from consilience.messages import decode, encode, question_for
from consilience.runs import Reply, digest
from consilience.site import respond


class ProcessPool:
    def __init__(self, workers=2):
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"))

    def over(self, sites, *, in_memory=False):
        return PoolSites(self._pool, sites)

    def each(self, work, items, shared):
        places = {self._pool.submit(work, item, shared): i for i, item in enumerate(items)}
        for done in as_completed(places):
            yield places[done], done.result()

    def close(self):
        self._pool.shutdown(cancel_futures=True)


class PoolSites:
    def __init__(self, pool, sites):
        self._pool, self._sites = pool, {site.name: site for site in sites}
        self.sites = tuple(self._sites)

    def ask(self, number, question, sites, *, total, timeout):
        asked, began, jobs = decode(question), time.perf_counter(), {}
        for name in sites:
            own = encode(question_for(asked, self.sites.index(name)))
            jobs[self._pool.submit(respond, own, self._sites[name])] = name
        try:
            for done in as_completed(jobs, timeout):
                message, seconds = done.result(), time.perf_counter() - began
                yield [Reply(number, (jobs[done],), message, (digest(message),), seconds)]
        except TimeoutError:  # the run counts those that are missing as failures
            pass
        finally:
            for job in jobs:
                job.cancel()

    def close(self):
        pass  # the pool is the engine's, and stays open
