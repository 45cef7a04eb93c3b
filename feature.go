package muster

import (
	"path"
	"strings"
)

// What a stage may use, and what a worker may be unable to carry out: see Worker.Lacks. A
// task is not placed on a worker that lacks a feature that the task uses.
const (
	FeatureFiles        = "files"        // files
	FeatureInputs       = "inputs"       // inputs
	FeatureOutputs      = "outputs"      // outputs
	FeatureEnv          = "env"          // env
	FeatureArgs         = "args"         // script.args
	FeatureURL          = "url"          // script.url
	FeatureShell        = "shell"        // run, as a text for the shell
	FeatureCommand      = "command"      // run, as a list
	FeaturePython       = "python"       // python
	FeatureRequirements = "requirements" // python.requirements
	FeatureInterpreter  = "interpreter"  // a script that is not Python's: see IsPythonScript
	FeatureContainer    = "container"    // the task runs in a container, and nowhere else
	FeatureCheckpoint   = "checkpoint"   // checkpoint
	FeatureGang         = "gang"         // gang
	FeatureLauncher     = "launcher"     // launcher
	FeatureNetwork      = "network"      // network: none or allowlist
	FeatureElement      = "element"      // array or matrix: the task knows which element it is
)

// What a worker may be unable to do while a task runs. No task is kept off a worker that
// lacks one of these: the server does what it can without the worker.
const (
	FeatureCancel    = "cancel"    // stop a task that runs
	FeatureLogs      = "logs"      // send what the task prints before it has ended
	FeatureArtifacts = "artifacts" // send files that the task made
)

// SpecFeatures lists the features of a stage, in the order in which Features returns them.
var SpecFeatures = []string{
	FeatureFiles, FeatureInputs, FeatureOutputs, FeatureEnv, FeatureArgs, FeatureURL, FeatureShell, FeatureCommand, FeaturePython,
	FeatureRequirements, FeatureInterpreter, FeatureContainer, FeatureCheckpoint, FeatureGang, FeatureLauncher, FeatureNetwork, FeatureElement,
}

// RunFeatures lists what a worker may be unable to do while a task runs.
var RunFeatures = []string{FeatureCancel, FeatureLogs, FeatureArtifacts}

// Features lists which of SpecFeatures a normalized stage uses; nil if none.
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
		return len(t.Env) > 0
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
		return t.Array != nil || t.Matrix != nil
	}
}

// IsPythonScript reports whether the stage's script is a program in Python that a Python
// without options can run: its interpreter is Python and nothing more, or it has none and
// begins with a #! line that names Python, or has no such line and a name that ends in .py.
// It is false without a script.
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
	return strings.EqualFold(path.Ext(name), ".py")
}

// isPython reports whether a command begins with python, python3 or python3.12, with or without a folder.
func isPython(words []string) bool {
	if len(words) == 0 {
		return false
	}
	version, ok := strings.CutPrefix(path.Base(words[0]), "python")
	return ok && strings.Trim(version, "0123456789.") == ""
}
