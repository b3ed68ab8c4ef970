#!/usr/bin/env python3
"""The files of deploy/, each by the tool that will read it, and every option in them by the program that will get it.

    test_files.py PLASMON_HOME      (an installed tree)

A tool that is missing fails the check that needs it: tools/setup --deploy installs them. Prints one line a check.
"""
import os
import re
import subprocess
import sys
import tempfile

import yaml

HOME = os.path.abspath(sys.argv[1])
TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPLOY = os.path.join(TOP, "deploy")
failed = 0


def check(name, ok, detail=""):
    global failed
    print(("ok   " if ok else "FAIL ") + name + ("" if ok else ": " + detail.strip()))
    failed += not ok


def run(*command, **extra):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **extra)
    except FileNotFoundError:
        return 127, "%s is not installed (tools/setup --deploy)" % command[0]
    return done.returncode, done.stdout


def read(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return file.read()


def options_of(program, known={}):
    if program not in known:
        known[program] = set(re.findall(r"--[a-z][a-z-]*", run(os.path.join(HOME, "bin", program), "--help")[1]))
    return known[program]


def check_options(name, text):
    """Options after each mention of a program, up to the end of the command."""
    joined = re.sub(r"\\\n", " ", text)
    joined = re.sub(r'",\s*"|\["|"\]|",\n?\s*args:', " ", joined)
    seen = 0
    for line in joined.splitlines():
        if line.lstrip().startswith("#"):
            continue
        for match in re.finditer(r"\b(plasmon-head|plasmon-store)\b(?!\.)([^|;&]*)", line):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", match.group(2)):
                seen += 1
                check("%s: %s %s" % (name, match.group(1), option), option in options_of(match.group(1)), "no such option")
    return seen


def check_slurm():
    code, text = run("bash", "-n", os.path.join(DEPLOY, "slurm", "plasmon.sbatch"))
    check("slurm: bash reads it", code == 0, text)
    code, text = run("shellcheck", "-S", "warning", os.path.join(DEPLOY, "slurm", "plasmon.sbatch"))
    check("slurm: shellcheck", code == 0, text)
    check("slurm: options", check_options("slurm", read("slurm", "plasmon.sbatch")) >= 3, "none were found")


def check_systemd():
    with tempfile.TemporaryDirectory() as folder:
        for unit in ("plasmon-head.service", "plasmon-store.service"):
            path = os.path.join(folder, unit)
            text = read("systemd", unit)
            check("systemd: %s runs a program of the release" % unit, "/opt/plasmon/bin/" in text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text.replace("/opt/plasmon", HOME))
            code, said = run("systemd-analyze", "verify", "--man=no", path)
            check("systemd: verify " + unit, code == 0 and said.strip() == "", said)
            check("systemd: options of " + unit, check_options("systemd", text) >= 2, "none were found")
    names = set(re.findall(r"^([A-Z_]+)=", read("systemd", "plasmon.env"), re.M))
    used = set(re.findall(r"\$\{?([A-Z_]+)", read("systemd", "plasmon-head.service") + read("systemd", "plasmon-store.service")))
    check("systemd: every variable is in plasmon.env", used <= names, str(used - names))


def check_pod(container):
    """One of ours: the program is in the release and takes these options. Returns how many there are."""
    program = container["command"][-1]
    check("kubernetes: %s is in the release" % program, os.access(os.path.join(HOME, "bin", program), os.X_OK))
    options = [a for a in container["args"] if a.startswith("--")]
    for option in options:
        check("kubernetes: %s %s" % (program, option), option in options_of(program), "no such option")
    return len(options)


def check_spill(container, pods):
    """A store says where it spills to: without it half of the node's disk could be taken. Within the volume's limit, or the pod is evicted."""
    if container["command"][-1] != "plasmon-store":
        return
    args = container["args"]
    wanted = args[args.index("--spill-dir") + 1] if "--spill-dir" in args else ""
    folder, _, limit = wanted.partition(":")
    volume = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}.get(folder)
    most = {v["name"]: v.get("emptyDir", {}).get("sizeLimit", "") for v in pods["volumes"]}.get(volume, "")
    check("kubernetes: files of the store have a volume with a limit", wanted == "none" or
          (most.endswith("Gi") and re.fullmatch(r"\d+G", limit) and int(limit[:-1]) < int(most[:-2])), "%s on %s" % (wanted, most))


def check_probes(container):
    """Who is asked whether it is ready; a store's end would take objects along, so nobody ends it for not answering."""
    store = container["name"] == "store"
    check("kubernetes: %s says when it is ready" % container["name"], "readinessProbe" in container)
    check("kubernetes: %s is %sended when it does not answer" % (container["name"], "not " if store else ""),
          ("livenessProbe" in container) == (not store))
    for name in ("readinessProbe", "livenessProbe", "startupProbe"):
        command = container.get(name, {}).get("exec", {}).get("command")
        if command:
            code, text = run("sh", "-n", "-c", command[2])
            check("kubernetes: sh reads the probe of " + container["name"], command[:2] == ["sh", "-c"] and code == 0, text)
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", command[2]):
                code, text = run(os.path.join(HOME, "bin", "plasmon"), "nodes", "--help")
                check("kubernetes: plasmon nodes %s" % option, option in text, "no such option")


def check_folders(pods):
    """A folder of the node is root's: somebody gives it to the user of the container before."""
    for volume in pods.get("volumes", []):
        if "hostPath" not in volume:
            continue
        makers = [c for c in pods.get("initContainers", []) if volume["name"] in [m["name"] for m in c["volumeMounts"]]]
        users = {str(c["securityContext"]["runAsUser"]) for c in pods["containers"]}
        check("kubernetes: %s is made the user's" % volume["hostPath"]["path"],
              len(makers) == 1 and users <= set(makers[0]["command"]) and
              makers[0]["command"][-1] == volume["hostPath"]["path"], str(makers))


def check_kubernetes():
    seen = 0
    for file in ("plasmon.yaml", "redis.yaml"):
        path = os.path.join(DEPLOY, "kubernetes", file)
        code, text = run(sys.executable, "-m", "kubernetes_validate", "--strict", "-k", "1.31", path)
        check("kubernetes: schema of " + file, code == 0, text)
        for document in yaml.safe_load_all(read("kubernetes", file)):
            spec = document["spec"]
            pods = spec.get("template", {}).get("spec", {})
            volumes = {v["name"] for v in pods.get("volumes", [])} | {
                v["metadata"]["name"] for v in spec.get("volumeClaimTemplates", [])}
            check_folders(pods)
            for container in pods.get("containers", []):
                check_probes(container)
                if container["image"].startswith("plasmon:"):
                    seen += check_pod(container)
                    check_spill(container, pods)
                else:
                    code, text = run("sh", "-n", "-c", container["args"][0])
                    check("kubernetes: the command of " + container["name"], code == 0, text)
                mounts = {m["name"] for m in container["volumeMounts"]}
                check("kubernetes: mounts of " + container["name"], mounts <= volumes, str(mounts - volumes))
            labels = spec.get("selector", {})
            labels = labels.get("matchLabels", labels)
            if document["kind"] != "Service":
                check("kubernetes: %s selects its own pods" % document["metadata"]["name"],
                      labels.items() <= spec["template"]["metadata"]["labels"].items())
    check("kubernetes: options", seen >= 5, "none were found")


def check_cloud_init():
    path = os.path.join(DEPLOY, "cloud-init", "node.yaml")
    code, text = run("cloud-init", "schema", "--config-file", path)
    check("cloud-init: schema", code == 0 and "Valid" in text, text)
    written = {f["path"] for f in yaml.safe_load(read("cloud-init", "node.yaml"))["write_files"]}
    check("cloud-init: writes what the units read", {"/etc/plasmon/plasmon.env", "/etc/plasmon/token"} <= written, str(written))


def container_steps(text):
    """Instructions of a Containerfile, continued lines joined."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip() and not line.lstrip().startswith("#")]


def check_container():
    steps = container_steps(read("container", "Containerfile"))
    known = {"ARG", "FROM", "RUN", "ADD", "ENV", "USER", "ENTRYPOINT", "CMD"}
    check("container: instructions", {s[0] for s in steps} <= known and steps[0][0] == "ARG", str(steps))
    check("container: does not run as root", [s[1] for s in steps if s[0] == "USER"] == ["plasmon"])
    for name, command in steps:
        if name == "RUN":
            code, text = run("bash", "-n", "-c", command)
            check("container: bash reads RUN " + command[:30], code == 0, text)
    sections = re.findall(r"^%(\w+)", read("container", "plasmon.def"), re.M)
    check("container: sections of plasmon.def", set(sections) <= {"arguments", "files", "post", "environment", "test", "runscript"}
          and {"files", "post", "runscript"} <= set(sections), str(sections))
    for body in re.findall(r"^%(?:post|environment|test|runscript)\n((?:    .*\n?)+)", read("container", "plasmon.def"), re.M):
        code, text = run("bash", "-n", "-c", body)
        check("container: bash reads a section", code == 0, text)
    for program in ("plasmon", "plasmon-head", "plasmon-store", "plasmon-worker"):
        check("container: %s is in the archive" % program, os.access(os.path.join(HOME, "bin", program), os.X_OK))


class Cluster:
    """A head and a store of this machine, by the name of a node, while the block runs."""

    def __init__(self, node):
        self.node = node
        self.folder = tempfile.TemporaryDirectory()
        self.env = dict(os.environ, XDG_RUNTIME_DIR=self.folder.name, PLASMON_BIN_DIR=os.path.join(HOME, "bin"),
                        PATH=os.path.join(HOME, "bin") + ":" + os.environ["PATH"])

    def __enter__(self):
        code, text = run("plasmon", "start", "--head", "--node", self.node, "--gpus", "none", "--cpu-devices", "1",
                         "--device-memory", "16M", "--spill-memory", "1M", env=self.env)
        check("a cluster of node %s starts" % self.node, code == 0, text)
        return self

    def __exit__(self, *_):
        run("plasmon", "stop", env=self.env)
        self.folder.cleanup()

    def run(self, *command, **env):
        return run(*command, env=dict(self.env, **env))


def check_ready():
    """The store's probe asks for its own node, and not for one whose name begins like it."""
    pods = [d["spec"]["template"]["spec"] for d in yaml.safe_load_all(read("kubernetes", "plasmon.yaml")) if d["kind"] == "DaemonSet"]
    probe = pods[0]["containers"][0]["readinessProbe"]["exec"]["command"]
    where = "--address plasmon-head:7070 --token-file /etc/plasmon/token"
    check("kubernetes: the probe asks the head", where in probe[2], probe[2])
    with Cluster("pool-10.example") as cluster:
        for name, ready in (("pool-10.example", True), ("pool-1", False), ("example", False)):
            code, text = cluster.run(*probe[:2], probe[2].replace(where, ""), NODE_NAME=name)
            check("kubernetes: node %s is %sready" % (name, "" if ready else "not "), (code == 0) == ready, text)


def check_prometheus():
    promtool = os.path.join(TOP, "tools", "deploy-promtool")
    with Cluster("machine") as cluster:
        code, told = cluster.run("plasmon", "metrics")
    check("prometheus: a cluster tells its figures", code == 0, told)
    code, text = run(promtool, "check", "metrics", input=told)
    check("prometheus: promtool reads them", code == 0, text)
    names = set(re.findall(r"^# TYPE (plasmon_\w+)", told, re.M))
    rules = yaml.safe_load(read("prometheus", "plasmon.rules.yml"))["groups"][0]["rules"]
    used = set(re.findall(r"\bplasmon_\w+", " ".join(rule["expr"] for rule in rules)))
    check("prometheus: the alerts are about figures that there are", len(used) >= 10 and used <= names, str(used - names))
    code, text = run(promtool, "check", "config", os.path.join(DEPLOY, "prometheus", "prometheus.yml"))
    check("prometheus: configuration and rules", code == 0 and "%d rules found" % len(rules) in text, text)
    with tempfile.TemporaryDirectory() as folder: # the test names the rules beside it
        for path in (os.path.join(DEPLOY, "prometheus", "plasmon.rules.yml"),
                     os.path.join(TOP, "tests", "deploy", "plasmon_rules_test.yml")):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            with open(os.path.join(folder, os.path.basename(path)), "w", encoding="utf-8") as file:
                file.write(text)
        code, text = run(promtool, "test", "rules", os.path.join(folder, "plasmon_rules_test.yml"))
        check("prometheus: each alert comes when it should, and else not", code == 0 and "SUCCESS" in text, text)
        tested = set(re.findall(r'alertname="(\w+)"', read("..", "tests", "deploy", "plasmon_rules_test.yml")))
        check("prometheus: each alert has a test", tested == {rule["alert"] for rule in rules},
              str(tested ^ {rule["alert"] for rule in rules}))


check_slurm()
check_systemd()
check_kubernetes()
check_ready()
check_cloud_init()
check_container()
check_prometheus()
print("%d failed" % failed)
sys.exit(failed != 0)
