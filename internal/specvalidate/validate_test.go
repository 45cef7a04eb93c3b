package specvalidate

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
)

const fullSpec = `{"name": "digits: a demo", "project": "vision", "priority": 0, "labels": {"team/x": "vision"}, "tasks": [
	{"name": "train", "files": ".", "run": "python train.py", "python": {"requirements": "requirements.txt", "project": ".", "extras": ["gpu"], "groups": ["dev"], "packages": ["numpy>=2", "./lib[x]"], "version": "3.12"},
	 "env": {"SEED": "1"}, "resources": {"cpus": 0.5, "memory": "4GiB", "disk": "10GiB", "gpus": {"count": 1, "memory": "10GiB", "share": true, "vendor": "nvidia"}},
	 "where": {"tags": ["linux"], "not": ["laptop"], "max_price": 2.5}, "timeout": "1h", "queue_timeout": "24h",
	 "retries": {"max": 2, "backoff": "10s", "on": ["worker_lost", "exit:75"]}, "kill": {"signal": "SIGINT", "grace": "30s"},
	 "disconnect": {"grace": "10m", "then": "fail"}, "checkpoint": "ckpt/", "network": "none", "launcher": "torchrun", "nproc_per_node": 2, "outputs": ["model.pt", "plots/*.png", "a/**"]},
	{"name": "middle", "needs": ["train"], "kind": "noop", "array": "1-3", "input": {"a": [1]}},
	{"name": "together", "gang": {"size": 4, "on_loss": "end"}, "run": ["train.py"], "checkpoint": {"every": "1s", "signal": "SIGUSR1", "grace": "1h"}, "resources": {"pids": 100}},
	{"name": "once", "run": "true", "cache": true}, {"name": "day", "image": "python@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "cache": "1d", "array": "0-9999"},
	{"name": "pair", "gang": 2, "kind": "noop", "network": "host"},
	{"name": "boxed", "image": "ghcr.io/acme/train:1.2@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "network": "bridge",
	 "container": {"entrypoint": [], "workdir": "/muster/work/src", "user": "1000:nogroup", "pull": "always", "shm_size": "1GiB", "read_only": true, "capabilities": ["NET_RAW", "CAP_KILL"],
	 "mounts": ["/data:/data:ro", {"source": "/scratch/x", "target": "/mnt"}]}, "resources": {"memory": "1GiB"}},
	{"name": "either", "image": "localhost:5000/a/b", "isolation": "auto", "run": "x", "python": {"packages": ["numpy"]}, "network": "allowlist",
	 "allow_hosts": ["pypi.org", "*.hf.co:443", "10.0.0.5:8080", "10.0.0.0/8", "10.0.0.0/8:80", "[fd00::1]:80", "fd00::/8", "::1"]},
	{"name": "images", "image": "python:${matrix.version}", "matrix": {"version": ["3.11", "3.12"]}, "files": ".", "script": "x", "isolation": "container"},
	{"name": "boxes", "image": "a", "gang": 2, "network": "host", "run": ["x.py"], "launcher": "torchrun"},
	{"name": "end", "needs": ["middle"], "script": {"text": "x", "interpreter": ["python3", "-u"], "args": ["a"]}, "matrix": {"lr": [1, 2]},
	 "inputs": [{"from": "train", "name": "model.pt"}, {"from": "middle", "name": "model.pt", "as": "in/m.pt"}]}]}`

func TestSpecAcceptsWhatTheDocumentationShows(t *testing.T) {
	var s muster.Spec
	if err := json.Unmarshal([]byte(fullSpec), &s); err != nil {
		t.Fatal(err)
	}
	for _, e := range Spec(&s) {
		t.Error(e)
	}
	if d := cmp.Diff(Spec(&s), Spec(s.Normalize())); d != "" {
		t.Errorf("normalizing changes a valid spec: %s", d)
	}
}

func TestResultThatIsAlsoAnOutput(t *testing.T) {
	for _, outputs := range []string{`"result.json"`, `"*.json"`, `"**"`} {
		var s muster.Spec
		text := `{"tasks": [{"name": "a", "run": "x", "outputs": [` + outputs + `]}, {"run": "x", "needs": ["a"], "inputs": [{"from": "a", "name": "result.json"}]}]}`
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		for _, e := range Spec(&s) {
			t.Errorf("%s: %v", outputs, e)
		}
	}
}

func TestSpec(t *testing.T) {
	task := func(fields string) string { return `{"tasks": [{"run": "x", ` + fields + `}]}` }
	hex := strings.Repeat("0a", 32)
	for _, c := range []struct{ spec, path, wantErr string }{
		{`{}`, "tasks", "no tasks"},
		{`{"tasks": [{}]}`, "tasks[0].kind", "nothing to run"},
		{`{"tasks": [{"files": "."}]}`, "tasks[0].run", "nothing to run"},
		{`{"tasks": [{"kind": "process"}]}`, "tasks[0].run", "nothing to run"},
		{task(`"kind": "Scr ipt"`), "tasks[0].kind", "use lower-case words"},
		{task(`"kind": "noop"`), "tasks[0].kind", "kind noop takes no run"},
		{task(`"kind": "process", "files": "."`), "tasks[0].kind", "kind process takes no"},
		{task(`"script": "y"`), "tasks[0].script", "both run and script"},
		{task(`"log_cap": "255KiB"`), "tasks[0].log_cap", "255KiB is out of range: write 256KiB to 16GiB"},
		{task(`"log_cap": "17GiB"`), "tasks[0].log_cap", "17GiB is out of range"},
		{task(`"stdin": "sha256:0A"`), "tasks[0].stdin", "64 lower-case hex digits"},
		{task(`"stdin": "a\u0000"`), "tasks[0].stdin", "a control character"},
		{`{"tasks": [{"kind": "noop", "stdin": "a"}]}`, "tasks[0].stdin", "kind noop has no standard input (leave stdin out)"},
		{task(`"gang": 2, "stdin": "a"`), "tasks[0].stdin", "the tasks of a gang have no standard input"},
		{`{"tasks": [{"run": ["a.py"], "launcher": "torchrun", "stdin": "a"}]}`, "tasks[0].stdin", "launcher"},
		{`{"tasks": [{"run": " \n"}]}`, "tasks[0].run", "is empty"},
		{`{"tasks": [{"run": []}]}`, "tasks[0].run", "is empty"},
		{`{"tasks": [{"run": ["", "a"]}]}`, "tasks[0].run", "must begin with the program"},
		{`{"tasks": [{"run": ["a", "b\u0000"]}]}`, "tasks[0].run[1]", "NUL byte"},
		{`{"tasks": [{"run": "` + strings.Repeat("x", maxArgument+1) + `"}]}`, "tasks[0].run", "131071"},
		{`{"tasks": [{"script": {}}]}`, "tasks[0].script", "this one has 0"},
		{`{"tasks": [{"script": {"text": "a", "url": "https://x"}}]}`, "tasks[0].script", "this one has 2"},
		{`{"tasks": [{"script": {"url": "ftp://x"}}]}`, "tasks[0].script.url", "not a URL"},
		{`{"tasks": [{"script": {"text": "a", "sha256": "` + hex + `"}}]}`, "tasks[0].script.sha256", "needs url"},
		{`{"tasks": [{"script": {"url": "https://x", "sha256": "ab"}}]}`, "tasks[0].script.sha256", "64"},
		{`{"tasks": [{"script": {"text": "a", "interpreter": [""]}}]}`, "tasks[0].script.interpreter", "must begin with the program"},
		{task(`"python": {}`), "tasks[0].python", "python is empty"},
		{task(`"python": {"requirements": "../r.txt"}`), "tasks[0].python.requirements", "not a path"},
		{task(`"python": {"packages": ["--index-url=x"]}`), "tasks[0].python.packages[0]", "not a package"},
		{task(`"python": {"project": "."}`), "tasks[0].python.project", "no files to install"},
		{task(`"files": ".", "python": {"project": "../a"}`), "tasks[0].python.project", "not a path"},
		{task(`"python": {"packages": ["x"], "extras": ["a"]}`), "tasks[0].python.extras", "need a project"},
		{task(`"python": {"packages": ["x"], "groups": ["a"]}`), "tasks[0].python.groups", "need a project"},
		{task(`"files": ".", "python": {"project": ".", "extras": ["-x"]}`), "tasks[0].python.extras[0]", "not a name"},
		{task(`"files": ".", "python": {"packages": ["./../a"]}`), "tasks[0].python.packages[0]", "not in the task's files"},
		{task(`"python": {"packages": ["./a"]}`), "tasks[0].python.packages[0]", "has no files"},
		{task(`"python": {"version": "three"}`), "tasks[0].python.version", "not a version"},
		{task(`"files": "sha256:zz"`), "tasks[0].files", "64"},
		{task(`"name": "a b"`), "tasks[0].name", "not a valid name"},
		{task(`"name": "matrix"`), "tasks[0].name", "reserved"},
		{task(`"array": "0-1", "matrix": {"a": [1]}`), "tasks[0].matrix", "cannot have"},
		{task(`"array": "0-10000000"`), "tasks[0].array", "too many"},
		{task(`"matrix": {}`), "tasks[0].matrix", "1 to 16 axes"},
		{task(`"matrix": {"a-b": [1]}`), "tasks[0].matrix.a-b", "invalid axis name"},
		{task(`"matrix": {"lr": [1], "LR": [2]}`), "tasks[0].matrix.LR", "duplicate axis"},
		{task(`"matrix": {"lr": []}`), "tasks[0].matrix.lr", "1 to 10000 values"},
		{task(`"matrix": {"lr": [1, 1]}`), "tasks[0].matrix.lr[1]", "duplicate"},
		{task(`"matrix": {"lr": ["a\nb"]}`), "tasks[0].matrix.lr[0]", "control character"},
		{task(`"matrix": {"a": "1-1000", "b": "1-1000", "c": "1-11"}`), "tasks[0].matrix", "too many"},
		{`{"tasks": [{"name": "a", "kind": "noop", "array": "1-6000000"}, {"name": "b", "kind": "noop", "array": "1-6000000"}]}`, "tasks", "more than 10000000"},
		{task(`"env": {"1A": "x"}`), "tasks[0].env.1A", "invalid variable name"},
		{task(`"env": {"muster_x": "x"}`), "tasks[0].env.muster_x", "are reserved"},
		{task(`"env": {"A": "\u0000"}`), "tasks[0].env.A", "NUL byte"},
		{task(`"secrets": ["1A"]`), "tasks[0].secrets[0]", "not a name of a secret"},
		{task(`"secrets": [{"name": "A", "env": "B", "file": "c"}]`), "tasks[0].secrets[0]", "both a variable and a file"},
		{task(`"secrets": [{"name": "A", "env": "B-C"}]`), "tasks[0].secrets[0].env", "invalid variable name"},
		{task(`"secrets": ["MUSTER_X"]`), "tasks[0].secrets[0].env", "are reserved"},
		{task(`"secrets": [{"name": "A", "file": "../a"}]`), "tasks[0].secrets[0].file", ".."},
		{task(`"secrets": [{"name": "A", "file": "/etc/a"}]`), "tasks[0].secrets[0].file", ""},
		{task(`"secrets": [{"name": "A", "file": "a/"}]`), "tasks[0].secrets[0].file", "not a path in the task's folder"},
		{task(`"secrets": [{"name": "A", "file": "."}]`), "tasks[0].secrets[0].file", "not a path in the task's folder"},
		{task(`"secrets": [{"name": "A", "registry": "ghcr.io"}]`), "tasks[0].secrets[0].registry", "a registry needs an image"},
		{task(`"image": "ghcr.io/a/b", "secrets": [{"name": "A", "registry": "ghcr.io", "env": "A"}]`), "tasks[0].secrets[0]", "is for a registry, and a variable or a file"},
		{task(`"image": "ghcr.io/a/b", "secrets": [{"name": "A", "registry": "quay.io"}]`), "tasks[0].secrets[0].registry", "the image ghcr.io/a/b is not of the registry quay.io"},
		{task(`"image": "ghcr.io.evil.dev/a/b", "secrets": [{"name": "A", "registry": "ghcr.io"}]`), "tasks[0].secrets[0].registry", "is not of the registry ghcr.io"},
		{task(`"image": "ghcr.io/a/b", "secrets": [{"name": "A", "registry": "https://ghcr.io"}]`), "tasks[0].secrets[0].registry", "is not a registry"},
		{task(`"image": "ghcr.io/a/b", "secrets": [{"name": "A", "registry": "ghcr"}]`), "tasks[0].secrets[0].registry", "is not the name of a registry"},
		{task(`"image": "python", "secrets": [{"name": "A", "registry": "index.docker.io"}]`), "tasks[0].secrets[0].registry", "another name of docker.io"},
		{task(`"image": "ghcr.io/a/b", "secrets": [{"name": "A", "registry": "ghcr.io"}, {"name": "B", "registry": "ghcr.io"}]`), "tasks[0].secrets[1]", "another secret has a registry, too"},
		{task(`"secrets": ["A"], "env": {"A": "x"}`), "tasks[0].secrets[0]", "env sets the variable A, too"},
		{task(`"secrets": ["A", {"name": "B", "env": "A"}]`), "tasks[0].secrets[1]", "another secret has the variable A, too"},
		{task(`"secrets": [{"name": "A", "file": "x"}, {"name": "B", "file": "x"}]`), "tasks[0].secrets[1]", "another secret has the file x, too"},
		{task(`"resources": {"cpus": -1}`), "tasks[0].resources.cpus", "not a number of cores"},
		{task(`"resources": {"cpus": 0.0001}`), "tasks[0].resources.cpus", "too little"},
		{task(`"resources": {"memory": "2000TiB"}`), "tasks[0].resources.memory", "out of range"},
		{task(`"resources": {"gpus": {"count": 1, "share": true}}`), "tasks[0].resources.gpus.share", "share needs memory"},
		{task(`"resources": {"gpus": {"memory": "1GiB"}}`), "tasks[0].resources.gpus", "number of GPUs"},
		{task(`"resources": {"gpus": {"count": 1, "vendor": "nvida"}}`), "tasks[0].resources.gpus.vendor", "did you mean nvidia?"},
		{task(`"resources": {"gpus": {"count": -1}}`), "tasks[0].resources.gpus.count", "not a number of GPUs"},
		{task(`"where": {"tags": ["a", " "]}`), "tasks[0].where.tags[1]", "empty"},
		{task(`"where": {"max_price": -1}`), "tasks[0].where.max_price", "not a price"},
		{task(`"retries": {"max": -1}`), "tasks[0].retries.max", "out of range"},
		{task(`"retries": {"on": ["exit:0"]}`), "tasks[0].retries.on[0]", "exit:1 to exit:255"},
		{task(`"retries": {"on": ["worker_lots"]}`), "tasks[0].retries.on[0]", "did you mean worker_lost?"},
		{task(`"retries": {"backoff": 60, "max_backoff": 5}`), "tasks[0].retries.max_backoff", "less than backoff"},
		{task(`"kill": {"signal": "TERM"}`), "tasks[0].kill.signal", "did you mean SIGTERM?"},
		{task(`"kill": {"grace": "2d"}`), "tasks[0].kill.grace", "out of range"},
		{task(`"disconnect": {"then": "retry"}`), "tasks[0].disconnect.then", "requeue or fail"},
		{task(`"outputs": ["/etc/passwd"]`), "tasks[0].outputs[0]", "not a path"},
		{task(`"outputs": ["a/../../b"]`), "tasks[0].outputs[0]", "not a path"},
		{task(`"outputs": ["a[b"]`), "tasks[0].outputs[0]", "bracket"},
		{task(`"resources": {"pids": -1}`), "tasks[0].resources.pids", "not a number of processes"},
		{task(`"cache": 0.5`), "tasks[0].cache", "500ms is out of range"},
		{task(`"cache": "366d"`), "tasks[0].cache", "out of range"},
		{task(`"cache": true, "gang": 2`), "tasks[0].cache", "members of a gang"},
		{task(`"cache": true, "array": "0-10000"`), "tasks[0].cache", "has 10001 tasks"},
		{task(`"cache": true, "image": "python:3.12"`), "tasks[0].cache", "the image python:3.12 may change"},
		{task(`"cache": true, "run": null, "script": {"url": "https://x.example/a.py"}`), "tasks[0].cache", "script at https://x.example/a.py may change"},
		{task(`"checkpoint": "../ckpt"`), "tasks[0].checkpoint.path", "not a folder in the task's folder"},
		{task(`"checkpoint": "/var/ckpt"`), "tasks[0].checkpoint.path", "such as ckpt/"},
		{task(`"checkpoint": "./"`), "tasks[0].checkpoint.path", "not a folder in"},
		{task(`"checkpoint": {"every": 0.5}`), "tasks[0].checkpoint.every", "the minimum is 1s"},
		{task(`"checkpoint": {"signal": "SIGKILL"}`), "tasks[0].checkpoint.signal", "no time to save"},
		{task(`"checkpoint": {"signal": "USR1"}`), "tasks[0].checkpoint.signal", "did you mean SIGUSR1?"},
		{task(`"checkpoint": {"grace": "2d"}`), "tasks[0].checkpoint.grace", "out of range"},
		{`{"tasks": [{"kind": "noop", "checkpoint": {}}]}`, "tasks[0].checkpoint", "nothing to save"},
		{task(`"network": "nono"`), "tasks[0].network", "did you mean none?"},
		{task(`"network": "bridge"`), "tasks[0].network", "bridge is for containers only: use host, allowlist or none"},
		{task(`"launcher": "torch-run"`), "tasks[0].launcher", "did you mean torchrun?"},
		{task(`"nproc_per_node": 2`), "tasks[0].nproc_per_node", "write launcher: torchrun"},
		{task(`"launcher": "torchrun", "nproc_per_node": -1`), "tasks[0].nproc_per_node", "not a number of processes"},
		{`{"tasks": [{"run": "torchrun --nnodes 2 train.py", "launcher": "torchrun"}]}`, "tasks[0].run", "already calls torchrun"},
		{`{"tasks": [{"kind": "noop", "launcher": "torchrun"}]}`, "tasks[0].launcher", "noop has no processes"},
		{task(`"gang": 0`), "tasks[0].gang.size", "write 1 to 1000"},
		{task(`"gang": 1001`), "tasks[0].gang.size", "write 1 to 1000"},
		{task(`"gang": {"size": 2, "on_loss": "restrt"}`), "tasks[0].gang.on_loss", "did you mean restart?"},
		{task(`"gang": 2, "array": "0-1"`), "tasks[0].gang", "cannot have"},
		{task(`"gang": 2, "network": "none"`), "tasks[0].network", "need the network"},
		{task(`"image": "Python:3"`), "tasks[0].image", "lower case: write python:3"},
		{task(`"image": "a b"`), "tasks[0].image", "not a valid image name (such as"},
		{task(`"image": "a:` + strings.Repeat("t", 129) + `"`), "tasks[0].image", "not a valid image name"},
		{task(`"image": "a@sha256:0a"`), "tasks[0].image", "not a valid image name"},
		{task(`"image": "-a"`), "tasks[0].image", "not a valid image name"},
		{task(`"image": "` + strings.Repeat("a/", 130) + `a"`), "tasks[0].image", "not a valid image name"},
		{task(`"image": "${index}` + strings.Repeat("x", maxLabel) + `"`), "tasks[0].image", "the maximum is 256"},
		{task(`"isolation": "containers"`), "tasks[0].isolation", "did you mean container?"},
		{task(`"isolation": "container"`), "tasks[0].isolation", "needs an image"},
		{task(`"isolation": "auto"`), "tasks[0].isolation", "needs an image"},
		{task(`"kind": "container"`), "tasks[0].image", "needs an image"},
		{task(`"image": "a", "isolation": "process"`), "tasks[0].isolation", "or write isolation: auto"},
		{task(`"image": "a", "isolation": "auto", "kind": "container"`), "tasks[0].isolation", "always run in a container (leave kind out)"},
		{task(`"image": "a", "kind": "container", "files": "."`), "tasks[0].kind", "kind container takes no"},
		{`{"tasks": [{"image": "a", "isolation": "auto"}]}`, "tasks[0].kind", "nothing to run"},
		{`{"tasks": [{"image": "a", "files": "."}]}`, "tasks[0].run", "nothing to run"},
		{`{"tasks": [{"image": "a", "kind": "noop"}]}`, "tasks[0].kind", "kind noop cannot run in a container"},
		{`{"tasks": [{"image": "a", "launcher": "torchrun"}]}`, "tasks[0].launcher", "the image's own command"},
		{task(`"container": {"user": "1"}`), "tasks[0].container", "need an image"},
		{task(`"image": "a", "container": {"entrypoint": [""]}`), "tasks[0].container.entrypoint", "must begin with the program"},
		{task(`"image": "a", "container": {"workdir": "x"}`), "tasks[0].container.workdir", "not an absolute path"},
		{task(`"image": "a", "container": {"user": "a b"}`), "tasks[0].container.user", "not a valid user"},
		{task(`"image": "a", "container": {"pull": "allways"}`), "tasks[0].container.pull", "did you mean always?"},
		{task(`"image": "a", "container": {"shm_size": "4KiB"}`), "tasks[0].container.shm_size", "write 64KiB to"},
		{task(`"image": "a", "container": {"shm_size": "2GiB"}, "resources": {"memory": "1GiB"}`), "tasks[0].container.shm_size", "exceeds resources.memory"},
		{task(`"image": "a", "container": {"capabilities": ["SYS_ADMIN"]}`), "tasks[0].container.capabilities[0]", "unknown value"},
		{task(`"image": "a", "container": {"mounts": [{"source": "x", "target": "/y"}]}`), "tasks[0].container.mounts[0].source", "not an absolute path"},
		{task(`"image": "a", "container": {"mounts": ["/a/../b:/y"]}`), "tasks[0].container.mounts[0].source", "not an absolute path"},
		{task(`"image": "a", "container": {"mounts": ["/a:/muster/out"]}`), "tasks[0].container.mounts[0].target", "use another folder"},
		{task(`"image": "a", "container": {"mounts": ["/a:/dev"]}`), "tasks[0].container.mounts[0].target", "use another folder"},
		{task(`"image": "a", "container": {"mounts": ["/a:/x", "/b:/x"]}`), "tasks[0].container.mounts[1].target", "another mount"},
		{task(`"image": "a", "container": {"mounts": [` + strings.Repeat(`"/a:/x", `, maxMounts) + `"/a:/x"]}`), "tasks[0].container.mounts", "too many"},
		{task(`"image": "a", "isolation": "auto", "network": "bridge"`), "tasks[0].network", "bridge is for containers only"},
		{task(`"network": "allowlist"`), "tasks[0].allow_hosts", "the allowlist is empty"},
		{task(`"allow_hosts": ["a"]`), "tasks[0].allow_hosts", "network: allowlist"},
		{task(`"network": "allowlist", "allow_hosts": ["http://a/"]`), "tasks[0].allow_hosts[0]", "not a valid host (such as"},
		{task(`"network": "allowlist", "allow_hosts": ["10.0.0.0.5:80"]`), "tasks[0].allow_hosts[0]", "not a valid host"},
		{task(`"image": "a", "gang": 2`), "tasks[0].network", "write network: host"},
		{`{"name": "a\nb", "tasks": [{"run": "x"}]}`, "name", "control character"},
		{`{"name": "` + strings.Repeat("n", 201) + `", "tasks": [{"run": "x"}]}`, "name", "the maximum is 200"},
		{`{"project": "a/b", "tasks": [{"run": "x"}]}`, "project", "not a valid name"},
		{`{"priority": 101, "tasks": [{"run": "x"}]}`, "priority", "0 to 100"},
		{`{"labels": {"a b": "x"}, "tasks": [{"run": "x"}]}`, "labels.a b", "invalid label name"},
		{`{"labels": {"a": "\u0007"}, "tasks": [{"run": "x"}]}`, "labels.a", "control character"},
		{`{"tasks": [{"name": "a", "run": "x"}, {"name": "a", "run": "x"}]}`, "tasks[1].name", "tasks[0] has the same name"},
		{`{"tasks": [{"name": "train", "run": "x"}, {"run": "x", "needs": ["trian"]}]}`, "tasks[1].needs[0]", "did you mean train?"},
		{task(`"name": "a", "needs": ["a"]`), "tasks[0].needs[0]", "need itself"},
		{`{"tasks": [{"name": "a", "run": "x"}, {"run": "x", "needs": ["a", "a"]}]}`, "tasks[1].needs[1]", "duplicate"},
		{`{"tasks": [{"name": "a", "run": "x", "needs": ["c"]}, {"name": "b", "run": "x", "needs": ["a"]}, {"name": "c", "run": "x", "needs": ["b"]}]}`,
			"tasks[0].needs", "a → c → b → a"},
		{`{"tasks": [{"name": "a", "run": "x"}, {"run": "x", "inputs": [{"from": "a", "name": "m"}]}]}`, "tasks[1].inputs[0].from", "add it to needs"},
		{`{"tasks": [{"name": "a", "run": "x"}, {"run": "x", "inputs": [{"from": "b", "name": "m"}]}]}`, "tasks[1].inputs[0].from", "unknown stage"},
		{`{"tasks": [{"name": "a", "run": "x"}, {"run": "x", "needs": ["a"], "inputs": [{"from": "a", "name": "result.json"}]}]}`,
			"tasks[1].inputs[0].name", "is the result of stage a, not an artifact"},
		{`{"tasks": [{"name": "a", "run": "x"}, {"run": "x", "needs": ["a"], "inputs": [{"from": "a", "name": "m"}, {"from": "a", "name": "n", "as": "m"}]}]}`,
			"tasks[1].inputs[1]", "another input has the path"},
		{`{"tasks": [{"name": "a", "run": "x"}, {"run": "x", "needs": ["a"], "inputs": [{"from": "a", "name": "m", "as": "../m"}]}]}`, "tasks[1].inputs[0].as", "not a path"},
		{`{"tasks": [{"name": "a", "kind": "noop", "array": "0-10000"}, {"run": "x", "needs": ["a"], "inputs": [{"from": "a", "name": "m"}]}]}`,
			"tasks[1].inputs", "more than 10000"},
		{task(`"input": {"a": "` + strings.Repeat("y", muster.MaxSpecSize) + `"}`), "", "the maximum is 1048576"},
	} {
		var s muster.Spec
		if err := json.Unmarshal([]byte(c.spec), &s); err != nil {
			t.Errorf("%.80s: %v", c.spec, err)
			continue
		}
		wrong := Spec(&s)
		if len(wrong) != 1 || wrong[0].Path != c.path || !strings.Contains(wrong[0].String(), c.wantErr) {
			t.Errorf("%.80s gives %v, want %s: …%s…", c.spec, wrong, c.path, c.wantErr)
		}
	}
}

func TestSpecOfWhatOnlyCodeCanWrite(t *testing.T) {
	for path, s := range map[string]muster.TaskSpec{
		"tasks[0].array":                {Array: &muster.Array{Ranges: []muster.Range{{First: 9, Last: 0, Step: 1}}}},
		"tasks[0].input":                {Input: json.RawMessage(`{`)},
		"tasks[0].resources.cpus":       {Resources: muster.Request{CPUs: math.NaN()}},
		"tasks[0].where.max_price":      {Where: muster.Where{MaxPrice: math.Inf(1)}},
		"tasks[0].timeout":              {Timeout: -1},
		"tasks[0].resources.memory":     {Resources: muster.Request{Memory: -1}},
		"tasks[0].outputs[0]":           {Outputs: []string{"a\xff"}},
		"tasks[0].resources.gpus.model": {Resources: muster.Request{GPUs: muster.GPURequest{Count: 1, Model: "a\x00"}}},
	} {
		s.Run = &muster.Command{Shell: "x"}
		wrong := Spec(&muster.Spec{Tasks: []muster.TaskSpec{s}})
		found := false
		for _, e := range wrong {
			found = found || e.Path == path
		}
		if !found {
			t.Errorf("%s: not rejected, only %v", path, wrong)
		}
	}
}

func TestSpecEnds(t *testing.T) {
	s := muster.Spec{}
	for i := range muster.MaxStages {
		need := make([]string, maxList)
		for k := range need {
			need[k] = fmt.Sprintf("missing-%d-%d", i, k)
		}
		s.Tasks = append(s.Tasks, muster.TaskSpec{Name: fmt.Sprintf("stage-with-a-long-name-%d", i), Kind: muster.KindNoop, Needs: need})
	}
	if n := len(Spec(&s)); n != maxWrong {
		t.Errorf("%d problems, want %d", n, maxWrong)
	}
}
