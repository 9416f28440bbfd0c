"""Runs the command many times over, each time in a fork of one process that has imported everything already.

Read as a script by test_faults.py: a line of JSON on standard input is one job, a line of JSON on standard output what
came of it. A job is

    arguments   what stands behind ``lingraft``
    at, after   the phase in which, counted from 0, and the seconds into it after which, ``number`` is sent
    number      the signal
    limit       with ``at``: no file may grow beyond so many bytes from that phase on, as on a full disk

and what comes back

    status      the exit status, negative for a signal
    said        standard output and error
    phases      [name, seconds since the start] of everything that began
    sent        the phase in which the signal was sent, or null where the process had ended before
    latency     seconds from the signal to the end
"""

import itertools
import json
import os
import resource
import selectors
import sys
import time
import traceback

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.llama import modeling_llama

import lingraft
from lingraft import cli, run, terminal
from lingraft.pipeline import adapt, training
from lingraft.training import stage

IMPORTED = (torch, transformers, modeling_auto, modeling_llama, lingraft, adapt, training)


def announced(function, name, announce):
    """Return a function that says its name each time it is called."""

    def inside(*arguments, **options):
        announce(name)
        return function(*arguments, **options)

    return inside


def child(job, pipe, output):
    """Be the command: exit as it does."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    phases = itertools.count()

    def announce(name):
        if next(phases) == job.get("at") and job.get("limit") is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (job["limit"], resource.RLIM_INFINITY))
        os.write(pipe, (name + "\n").encode())

    told = terminal.TerminalProgress.phase
    terminal.TerminalProgress.phase = lambda self, title: (announce(title), told(self, title))[1]
    stage.save_checkpoint = announced(stage.save_checkpoint, "checkpoint", announce)
    adapt.write_report = announced(adapt.write_report, "writing the report", announce)
    run.Run.adopt = announced(run.Run.adopt, "adopting", announce)
    sys.argv = ["lingraft", *job["arguments"]]
    status = 0
    try:
        cli.main()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever comes, the parent hears of it
        traceback.print_exc()
        status = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


def watch(job, process, pipe, output):
    """Send the signal when its moment has come; return what is told of the run."""
    began, phases, due, sent, moment, rest, said = time.monotonic(), [], None, None, None, b"", b""
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    selector.register(output, selectors.EVENT_READ)
    while selector.get_map():
        for key, _ in selector.select(None if due is None else max(0.0, due - time.monotonic())):
            piece = os.read(key.fd, 65536)
            if not piece:
                selector.unregister(key.fd)
            elif key.fd == output:
                said += piece
            else:
                *names, rest = (rest + piece).split(b"\n")
                for name in names:
                    if job.get("number") and len(phases) == job["at"]:
                        due = time.monotonic() + job["after"]
                    phases.append([name.decode(), time.monotonic() - began])
        if due is not None and time.monotonic() >= due:
            os.kill(process, job["number"])
            due, moment, sent = None, time.monotonic(), phases[-1][0]
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    ended = time.monotonic()
    latency = None if moment is None else ended - moment
    told = {"status": status, "phases": phases, "sent": sent, "latency": latency, "seconds": ended - began}
    return told | {"said": said.decode(errors="replace")}


def main():
    """Do jobs until standard input ends."""
    for line in sys.stdin:
        job = json.loads(line)
        (reader, writer), (listener, speaker) = os.pipe(), os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reader)
            os.close(listener)
            child(job, writer, speaker)
        os.close(writer)
        os.close(speaker)
        print(json.dumps(watch(job, process, reader, listener)), flush=True)
        os.close(reader)
        os.close(listener)


if __name__ == "__main__":
    main()
