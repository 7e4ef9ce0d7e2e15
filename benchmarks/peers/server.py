"""A server under test: started as the leader of its own process group, timed to its first token, watched through /proc, stopped with its children."""
import http.client
import json
import os
import signal
import subprocess
import time


class Server:
    """One process tree that serves OpenAI's /v1/completions on 127.0.0.1:`port` under the model name `model` and ends on SIGTERM."""

    def __init__(self, name, command, port, log, limit_s=300):
        self.name, self.command, self.port, self.log, self.limit_s, self.process = name, command, port, log, limit_s, None

    def start(self):
        """Seconds from exec to the first token of a 1-token completion."""
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, start_new_session=True)
        start = time.perf_counter()
        while time.perf_counter() - start < self.limit_s:
            if self.process.poll() is not None:
                raise OSError(f"{self.name} ended with status {self.process.returncode} before it answered: see {self.log}")
            if self._answers():
                return round(time.perf_counter() - start, 2)
            time.sleep(0.01)
        raise OSError(f"{self.name}: no answer on port {self.port} after {self.limit_s} s: see {self.log}")

    def _answers(self):
        body = json.dumps({"model": "model", "prompt": "Hello", "max_tokens": 1, "temperature": 0})
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.limit_s)
            c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            answer = c.getresponse()
            answer.read()
            return answer.status == 200
        except (OSError, http.client.HTTPException):
            return False

    def stop(self):
        if not self.process:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # the group it leads: children that outlived it included
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None
        time.sleep(1)

    def family(self):
        """The ids of the process and all its descendants."""
        out = [self.process.pid]
        for p in out:
            try:
                for task in os.listdir(f"/proc/{p}/task"):
                    with open(f"/proc/{p}/task/{task}/children") as f:
                        out += [int(c) for c in f.read().split()]
            except OSError:
                pass
        return out

    def memory_mb(self):
        """RSS over the family with shared pages counted in part (Pss), and the part of it that is anonymous."""
        total = {"Pss": 0, "Pss_Anon": 0}
        for p in self.family():
            try:
                with open(f"/proc/{p}/smaps_rollup") as f:
                    for line in f:
                        key = line.split(":")[0]
                        if key in total:
                            total[key] += int(line.split()[1])
            except OSError:
                pass
        return {"rss_mb": round(total["Pss"] / 1024), "anonymous_mb": round(total["Pss_Anon"] / 1024)}

    def cpu_seconds(self):
        ticks = 0
        for p in self.family():
            try:
                with open(f"/proc/{p}/stat") as f:
                    ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
            except OSError:
                pass
        return ticks / os.sysconf("SC_CLK_TCK")


def shown(command):
    """The command as a reader would type it: absolute paths cut to their last part."""
    return " ".join(os.path.basename(c) if c.startswith("/") else c for c in command)


def busy_seconds():
    """CPU time that all processes of the machine have used, so that a noisy neighbour shows; stolen time of a virtual machine is part of it."""
    with open("/proc/stat") as f:
        user, nice, system, _, _, irq, soft, steal = map(int, f.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def machine():
    """CPU model, cores, memory and kernel of this machine, in words."""
    with open("/proc/cpuinfo") as f:
        lines = f.read().splitlines()
    field = lambda name: next((line.split(":", 1)[1].strip() for line in lines if line.startswith(name)), "?")
    flags = set(field("flags").split())
    known = [f for f in ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "amx_int8") if f in flags]
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpu = f"{field('model name')} (family {field('cpu family')}, model {field('model	')}; {', '.join(known)})"
    return f"{cpu}, {os.cpu_count()} CPUs, {gib:.0f} GiB, Linux {os.uname().release.split('-')[0]}"
