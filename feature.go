package muster

import (
	"path"
	"strings"
)

// Features that a stage may use and that a worker may not support: see
// Worker.UnsupportedFeatures. A task is placed only on a worker that supports all features it uses.
const (
	FeatureFiles        = "files"        // files
	FeatureInputs       = "inputs"       // inputs
	FeatureOutputs      = "outputs"      // outputs
	FeatureEnv          = "env"          // env
	FeatureSecrets      = "secrets"      // secrets
	FeatureStdin        = "stdin"        // stdin
	FeatureArgs         = "args"         // script.args
	FeatureURL          = "url"          // script.url
	FeatureShell        = "shell"        // run, as a string for the shell
	FeatureCommand      = "command"      // run, as a list
	FeaturePython       = "python"       // python
	FeatureRequirements = "requirements" // python.requirements
	FeatureProject      = "project"      // python.project, or a path in python.packages
	FeatureInterpreter  = "interpreter"  // a script that is not Python: see IsPythonScript
	FeatureContainer    = "container"    // the task must run in a container
	FeatureCheckpoint   = "checkpoint"   // checkpoint
	FeatureGang         = "gang"         // gang
	FeatureLauncher     = "launcher"     // launcher
	FeatureNetwork      = "network"      // network: none or allowlist
	FeatureElement      = "element"      // array or matrix: the task gets its element
)

// Features of a worker while a task runs. They do not affect placement: the server
// does what it can without the worker.
const (
	FeatureCancel    = "cancel"    // stop a running task
	FeatureLogs      = "logs"      // send output before the task ends
	FeatureArtifacts = "artifacts" // send files that the task created
	FeatureExec      = "exec"      // execute commands in a running task, and copy its files
)

// SpecFeatures lists the features of stages, in the order in which Features returns them.
var SpecFeatures = []string{
	FeatureFiles, FeatureInputs, FeatureOutputs, FeatureEnv, FeatureSecrets, FeatureStdin, FeatureArgs, FeatureURL, FeatureShell, FeatureCommand, FeaturePython,
	FeatureRequirements, FeatureProject, FeatureInterpreter, FeatureContainer, FeatureCheckpoint, FeatureGang, FeatureLauncher, FeatureNetwork, FeatureElement,
}

// RunFeatures lists the features of a worker while a task runs.
var RunFeatures = []string{FeatureCancel, FeatureLogs, FeatureArtifacts, FeatureExec}

// Features returns those of SpecFeatures that a normalized stage uses; nil if none.
func Features(t *TaskSpec) []string {
	var list []string
	for _, name := range SpecFeatures {
		if t.uses(name) {
			list = append(list, name)
		}
	}
	return list
}

// uses reports whether the stage uses one of SpecFeatures.
func (t *TaskSpec) uses(feature string) bool {
	switch feature {
	case FeatureFiles:
		return t.Files != ""
	case FeatureInputs:
		return len(t.Inputs) > 0
	case FeatureOutputs:
		return len(t.Outputs) > 0
	case FeatureEnv:
		return len(t.Env) > 0 || t.Array != nil && (t.Array.From != "" || t.Array.Items != nil) // $MUSTER_ITEM
	case FeatureSecrets:
		return len(t.Secrets) > 0
	case FeatureStdin:
		return t.Stdin != ""
	case FeatureArgs:
		return t.Script != nil && len(t.Script.Args) > 0
	case FeatureURL:
		return t.Script != nil && t.Script.URL != ""
	case FeatureShell:
		return t.Run != nil && t.Run.Shell != ""
	case FeatureCommand:
		return t.Run != nil && len(t.Run.Argv) > 0
	case FeaturePython:
		return t.Python != nil
	case FeatureRequirements:
		return t.Python != nil && t.Python.Requirements != ""
	case FeatureProject:
		return t.Python != nil && t.Python.UsesFiles()
	case FeatureInterpreter:
		return t.Script != nil && !IsPythonScript(t)
	case FeatureContainer:
		return t.Isolation == IsolationContainer || t.Kind == KindContainer
	case FeatureCheckpoint:
		return t.Checkpoint != nil
	case FeatureGang:
		return t.Gang != nil
	case FeatureLauncher:
		return t.Launcher != ""
	case FeatureNetwork:
		return t.Network == NetworkNone || t.Network == NetworkAllowlist
	default: // FeatureElement
		return t.Array != nil || t.Matrix != nil || t.Sweep != nil
	}
}

// IsPythonScript reports whether Python without options can run the stage's script: its
// interpreter is Python without arguments, or it has no interpreter and either begins with
// a #! line that names Python, or has a name that ends in .py, or has no suffix in its name and LooksLikePython. It is false without a script.
func IsPythonScript(t *TaskSpec) bool {
	s := t.Script
	if s == nil {
		return false
	}
	if len(s.Interpreter) > 0 {
		return isPython(s.Interpreter) && len(s.Interpreter) == 1
	}
	if line, ok := strings.CutPrefix(s.Text, "#!"); ok {
		line, _, _ = strings.Cut(line, "\n")
		words := strings.Fields(line)
		if len(words) > 1 && path.Base(words[0]) == "env" {
			words = words[1:]
			if words[0] == "-S" {
				words = words[1:]
			}
		}
		return isPython(words)
	}
	name := s.File
	if name == "" {
		name, _, _ = strings.Cut(s.URL, "?")
	}
	extension := path.Ext(name)
	return strings.EqualFold(extension, ".py") || extension == "" && LooksLikePython(s.Text)
}

// isPython reports whether a command begins with python, python3 or python3.12, with or without a folder.
func isPython(words []string) bool {
	if len(words) == 0 {
		return false
	}
	version, ok := strings.CutPrefix(path.Base(words[0]), "python")
	return ok && strings.Trim(version, "0123456789.") == ""
}
