package cli

import (
	"slices"
	"strings"
)

// commandHint is what to use instead of commands of docker, kubectl, Slurm, PBS, HyperQueue, Nomad and gh.
type commandHint struct{ words, instead string }

// commandHints are the words after a command, by its name without "muster". Names of existing commands have precedence.
func commandHints(command string) []commandHint {
	switch command {
	case "":
		return []commandHint{
			// docker
			{"attach", "use muster logs -f JOB, or muster shell TASK"},
			{"kill stop", "use muster cancel JOB"},
			{"start restart", "use muster retry JOB, which runs failed tasks again, or muster rerun JOB"},
			{"inspect", "use muster job JOB -o json"},
			{"stats", "use muster usage -f JOB, or muster top"},
			{"create", "use muster submit FILE, or muster run -d COMMAND"},
			{"images", "use muster run --image IMAGE COMMAND: workers pull images when they need them"},
			{"pull", "workers pull images when they need them: use muster run --image IMAGE COMMAND"},
			{"build push", "images are built and pushed with docker or podman: use muster run --image IMAGE COMMAND"},
			{"container", "use muster ps, muster job JOB, or muster logs JOB"},
			{"info system", "use muster doctor, or muster workers"},
			{"logout", "use muster context delete NAME"},
			{"rmi image", "images are removed by the workers: muster worker --image-disk 64GiB limits them"},
			{"volume network port", "there is nothing like it: tasks get files with --files and inputs, and keep those named in outputs"},
			{"compose stack swarm service", "use muster submit FILE, with one stage for each step"},
			// kubectl
			{"apply", "use muster submit FILE"},
			{"describe", "use muster job JOB, muster workers show WORKER, or muster explain TASK"},
			{"delete", "use muster cancel JOB, or muster rm JOB"},
			{"drain", "use muster workers drain WORKER"},
			{"cordon pause", "use muster workers pause WORKER"},
			{"uncordon resume", "use muster workers resume WORKER"},
			{"nodes node machines hosts", "use muster workers"},
			{"pods pod allocations", "use muster tasks JOB"},
			{"config", "use muster context list"},
			{"rollout scale expose label annotate port-forward", "there is nothing like it: jobs run to their end"},
			// Slurm, PBS
			{"sbatch qsub bsub", "use muster submit FILE, or muster run -d COMMAND"},
			{"srun", "use muster run COMMAND"},
			{"squeue qstat bjobs", "use muster ps"},
			{"scancel qdel bkill", "use muster cancel JOB"},
			{"sinfo pbsnodes", "use muster workers"},
			{"sacct", "use muster ps -a"},
			{"salloc", "use muster shell TASK, or muster run COMMAND"},
			{"scontrol", "use muster edit JOB, muster job JOB, or muster workers show WORKER"},
			{"sstat seff", "use muster usage JOB"},
			{"sattach", "use muster logs -f JOB"},
			{"sprio", "use muster explain TASK"},
			{"sacctmgr", "use muster keys list"},
			{"sview smap", "use muster top"},
			// HyperQueue, Nomad, gh
			{"alloc", "use muster tasks JOB"},
			{"agent client", "use muster worker"},
			{"status list ls jobs", "use muster ps, or muster job JOB"},
			{"show view", "use muster job JOB, or muster workers show WORKER"},
			{"task", "use muster tasks JOB"},
			{"queue", "use muster ps --state queued"},
			{"history", "use muster ps -a"},
			{"watch monitor", "use muster ps --watch, or muster top"},
			{"tail log output", "use muster logs -f JOB"},
			{"download artifacts artifact fetch", "use muster get JOB"},
			{"eval why", "use muster explain TASK"},
			{"validate lint", "use muster plan FILE"},
			{"join", "use muster worker --server URL --token-file FILE"},
			{"auth", "use muster login URL, or muster keys list"},
			{"token tokens", "use muster keys list"},
			{"init", "use muster up"},
			{"down shutdown", "the server and its worker end with Ctrl-C or SIGTERM"},
			{"ui dashboard web", "the dashboard is at the address of the server: muster context list shows it"},
			{"update upgrade self-update", "replace the program and restart the service: see docs/guides/operate-a-server.md"},
			{"contexts servers profile", "use muster context list"},
		}
	case "worker":
		return []commandHint{
			{"start run", "the command is muster worker"},
			{"list ls status", "use muster workers"},
			{"info show describe inspect", "use muster workers show WORKER"},
			{"stop drain", "use muster workers drain WORKER"},
			{"pause cordon", "use muster workers pause WORKER"},
			{"resume uncordon", "use muster workers resume WORKER"},
			{"remove rm delete", "use muster workers remove WORKER"},
		}
	case "workers":
		return []commandHint{
			{"list ls status", "use muster workers"},
			{"info describe inspect get", "use muster workers show WORKER"},
			{"stop", "use muster workers drain WORKER"},
			{"cordon", "use muster workers pause WORKER"},
			{"uncordon", "use muster workers resume WORKER"},
			{"rm delete", "use muster workers remove WORKER"},
			{"start add join create", "on the other machine, use muster worker --server URL"},
		}
	case "server":
		return []commandHint{
			{"start run", "the command is muster server"},
			{"stop", "it ends with Ctrl-C or SIGTERM"},
			{"info status members", "use muster doctor"},
		}
	case "job":
		return []commandHint{
			{"list ls status", "use muster ps"},
			{"info show inspect describe view", "use muster job JOB"},
			{"cat logs output", "use muster logs JOB"},
			{"cancel stop kill", "use muster cancel JOB"},
			{"run submit", "use muster submit FILE"},
			{"wait", "use muster wait JOB"},
			{"plan validate", "use muster plan FILE"},
			{"tasks", "use muster tasks JOB"},
		}
	case "tasks":
		return []commandHint{
			{"list ls", "use muster tasks JOB"},
			{"info show inspect", "use muster explain TASK, or muster tasks JOB -o wide"},
		}
	case "get":
		return []commandHint{
			{"pods pod po", "use muster ps, or muster tasks JOB"},
			{"jobs job all", "use muster ps"},
			{"nodes node no workers", "use muster workers"},
			{"events", "use muster events JOB"},
			{"logs", "use muster logs JOB"},
		}
	case "kinds":
		return []commandHint{{"list ls", "use muster kinds"}}
	case "keys":
		return []commandHint{
			{"ls", "use muster keys list"},
			{"add new", "use muster keys create"},
			{"rm delete remove", "use muster keys revoke KEY-ID"},
		}
	case "context":
		return []commandHint{
			{"ls get-contexts show current current-context inspect", "use muster context list"},
			{"use-context switch set select", "use muster context use NAME"},
			{"add create new import", "use muster login URL"},
			{"rm remove delete-context", "use muster context delete NAME"},
		}
	}
	return nil
}

// foreignCommand returns what to use instead of a word after a command that similar programs have, "" if none has it.
func foreignCommand(command, word string) string {
	command = strings.TrimPrefix(strings.TrimPrefix(command, "muster"), " ")
	for _, h := range commandHints(command) {
		if slices.Contains(strings.Fields(h.words), word) {
			return h.instead
		}
	}
	return ""
}
