package muster_test

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster"
)

func TestFeaturesOfAStage(t *testing.T) {
	t.Parallel()
	for want, spec := range map[string]muster.TaskSpec{
		muster.FeatureFiles:      {Files: "sha256:0"},
		muster.FeatureInputs:     {Inputs: []muster.Input{{From: "a", Name: "b"}}},
		muster.FeatureOutputs:    {Outputs: []string{"*"}},
		muster.FeatureStdin:      {Stdin: "sha256:00"},
		muster.FeatureEnv:        {Env: map[string]string{"A": "1"}},
		muster.FeatureShell:      {Run: &muster.Command{Shell: "true"}},
		muster.FeatureCommand:    {Run: &muster.Command{Argv: []string{"true"}}},
		muster.FeaturePython:     {Python: &muster.Python{Packages: []string{"numpy"}}},
		muster.FeatureArgs:       {Script: &muster.Script{Text: "#!/usr/bin/env python3\n", Args: []string{"a"}}},
		muster.FeatureURL:        {Script: &muster.Script{URL: "https://example.org/a.py?token=1"}},
		muster.FeatureContainer:  {Isolation: muster.IsolationContainer},
		muster.FeatureCheckpoint: {Checkpoint: &muster.Checkpoint{}},
		muster.FeatureGang:       {Gang: &muster.Gang{Size: 2}},
		muster.FeatureLauncher:   {Launcher: muster.LauncherTorchrun},
		muster.FeatureNetwork:    {Network: muster.NetworkAllowlist},
		muster.FeatureElement:    {Matrix: &muster.Matrix{}},

		muster.FeatureInterpreter: {Script: &muster.Script{Text: "echo hello"}},
	} {
		if got := muster.Features(&spec); !slices.Equal(got, []string{want}) {
			t.Errorf("%v, want only %s", got, want)
		}
	}
	reqs := muster.TaskSpec{Python: &muster.Python{Requirements: "requirements.txt"}}
	if got := muster.Features(&reqs); !slices.Equal(got, []string{muster.FeaturePython, muster.FeatureRequirements}) {
		t.Errorf("requirements: %v", got)
	}
	for _, p := range []muster.Python{{Project: "."}, {Packages: []string{"numpy", "./lib"}}} {
		if got := muster.Features(&muster.TaskSpec{Python: &p}); !slices.Equal(got, []string{muster.FeaturePython, muster.FeatureProject}) {
			t.Errorf("%+v: %v", p, got)
		}
	}
	if got := muster.Features(&muster.TaskSpec{Kind: "echo", Network: muster.NetworkHost, Isolation: muster.IsolationAuto, Image: "python:3"}); got != nil {
		t.Errorf("a plain stage uses %v", got)
	}
	all := muster.TaskSpec{
		Kind: muster.KindContainer, Files: "f", Inputs: make([]muster.Input, 1), Outputs: []string{"*"}, Env: map[string]string{"A": ""}, Stdin: "f",
		Secrets: make([]muster.Secret, 1),
		Script:  &muster.Script{URL: "https://example.org/a.sh", Args: []string{"a"}}, Run: &muster.Command{Shell: "a", Argv: []string{"a"}},
		Python: &muster.Python{Requirements: "r", Project: "."}, Checkpoint: &muster.Checkpoint{}, Gang: &muster.Gang{}, Launcher: "torchrun", Network: "none", Array: &muster.Array{},
	}
	if got := muster.Features(&all); !slices.Equal(got, muster.SpecFeatures) {
		t.Errorf("a stage with everything uses %v", got)
	}
}

func TestPythonScript(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		script muster.Script
		want   bool
	}{
		{muster.Script{Text: "print(1)", Interpreter: []string{"python3"}}, true},
		{muster.Script{Text: "print(1)", Interpreter: []string{"/opt/bin/python3.12"}}, true},
		{muster.Script{Text: "print(1)", Interpreter: []string{"python3", "-O"}}, false},
		{muster.Script{Text: "#!/usr/bin/python\nprint(1)", Interpreter: []string{"bash"}}, false},
		{muster.Script{Text: "#!/usr/bin/python3 -u\nprint(1)"}, true},
		{muster.Script{Text: "#!/usr/bin/env python3\nprint(1)"}, true},
		{muster.Script{Text: "#! /usr/bin/env -S python3 -u\r\nprint(1)"}, true},
		{muster.Script{Text: "#!/usr/bin/env pythonista\n"}, false},
		{muster.Script{Text: "#!/usr/bin/env\n"}, false},
		{muster.Script{Text: "#!/usr/bin/env -S\n"}, false},
		{muster.Script{Text: "#!\npython"}, false},
		{muster.Script{Text: "print(1)"}, true},
		{muster.Script{Text: "echo 1"}, false},
		{muster.Script{Text: "print(1)", File: "a.sh"}, false}, // by sh
		{muster.Script{File: "train.py"}, true},
		{muster.Script{File: "train.sh"}, false},
		{muster.Script{URL: "https://example.org/train.PY?raw=1"}, true},
	} {
		if got := muster.IsPythonScript(&muster.TaskSpec{Script: &tt.script}); got != tt.want {
			t.Errorf("%+v: %t", tt.script, got)
		}
	}
	if muster.IsPythonScript(&muster.TaskSpec{Run: &muster.Command{Shell: "python3 a.py"}}) {
		t.Error("a command is treated as a script")
	}
}
