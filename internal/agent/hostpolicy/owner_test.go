package hostpolicy

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

const (
	mib = muster.Size(1 << 20)
	gib = muster.Size(1 << 30)
)

func reading(used muster.Size, processes ...gpu.Process) gpu.Reading {
	if processes == nil {
		processes = []gpu.Process{}
	}
	return gpu.Reading{GPULoad: muster.GPULoad{UUID: "GPU-1", Memory: &used}, Processes: processes}
}

func TestWants(t *testing.T) {
	of := func(pid int) ownerKind { return ownerKind(pid % 10) } // by the last digit
	const somebodys, nobodys, task, roots = 10 + int(ownedByUser), 10 + int(ownedByNobody), 10 + int(ownedByTask), 10 + int(ownedByRoot)
	for _, test := range []struct {
		name   string
		r      gpu.Reading
		given  bool
		why    string
		hidden bool
	}{
		{"idle", reading(3 * mib), false, "", false},
		{"a task of ours", reading(8*gib, gpu.Process{PID: task, Memory: 8 * gib}), true, "", false},
		{"the owner's", reading(gib, gpu.Process{PID: somebodys, Name: "/usr/bin/blender", Memory: gib}), false, "in use by its owner: pid 10 blender", false},
		{"the owner's beside ours", reading(9*gib, gpu.Process{PID: task, Memory: 8 * gib}, gpu.Process{PID: somebodys, Name: "python", Memory: gib}), true, "in use by its owner: pid 10 python", false},
		{"the biggest is named", reading(3*gib, gpu.Process{PID: somebodys, Name: "a", Memory: gib}, gpu.Process{PID: 20, Name: "b", Memory: 2 * gib}), false, "in use by its owner: pid 20 b", false},
		{"of unknown memory", reading(gib, gpu.Process{PID: somebodys, Name: "[Not Found]"}), false, "in use by its owner: pid 10", false},
		{"of Windows", reading(gib, gpu.Process{PID: somebodys, Name: `C:\Games\doom.exe`, Memory: gib}), false, "in use by its owner: pid 10 doom.exe", false},
		{"the desktop", reading(gib, gpu.Process{PID: somebodys, Name: "/usr/bin/gnome-shell", Memory: 600 * mib}, gpu.Process{PID: roots, Name: "/usr/lib/xorg/Xorg", Memory: 300 * mib}), false, "", false},
		{"a desktop that is no longer small", reading(2*gib, gpu.Process{PID: somebodys, Name: "Xorg", Memory: 2 * gib}), false, "in use by its owner: pid 10 Xorg", false},
		{"a daemon of root's", reading(gib, gpu.Process{PID: roots, Name: "nvidia-persistenced", Memory: 100 * mib}), false, "", false},
		{"root computes", reading(gib, gpu.Process{PID: roots, Name: "python", Memory: gib}), false, "in use by its owner: pid 13 python", false},
		{"one that has just ended", reading(gib, gpu.Process{PID: nobodys, Name: "python", Memory: gib}), false, "", false},
		{"no process is listed", reading(2*gib + mib), false, "", true},
		{"no process is listed, not even our task, as in a container", reading(20 * gib), true, "", false},
		{"our task is listed, something else is not", reading(11*gib, gpu.Process{PID: task, Memory: 8 * gib}), true, "", true},
		{"our task's memory is unknown", reading(11*gib, gpu.Process{PID: task}), true, "", false},
		{"a driver's own memory", reading(10*gib, gpu.Process{PID: task, Memory: 9*gib + 200*mib}), true, "", false},
	} {
		why, hidden, known := ownerUse(&test.r, of, test.given)
		if why != test.why || hidden != test.hidden || !known {
			t.Errorf("%s: %q, hidden %t, known %t", test.name, why, hidden, known)
		}
	}
	if _, _, known := ownerUse(&gpu.Reading{}, of, false); known {
		t.Error("a device without readings counts as known")
	}
}

func TestOwner(t *testing.T) {
	o := ownerTracker{coolDown: 30 * time.Second, uses: map[string]*deviceUse{}}
	of := func(int) ownerKind { return ownedByUser }
	here := reading(gib, gpu.Process{PID: 1, Name: "blender", Memory: gib})
	game := reading(3 * gib)
	gone := reading(0)
	silent := gpu.Reading{GPULoad: muster.GPULoad{UUID: "GPU-1"}}
	const blender = "in use by its owner: pid 1 blender"
	now := epoch
	for i, step := range []struct {
		after time.Duration
		r     *gpu.Reading // nil for none
		want  string
	}{
		{0, &gone, ""},
		{2 * time.Second, &here, blender},
		{2 * time.Second, &gone, blender},
		{27 * time.Second, &gone, blender},
		{time.Second, &gone, ""},
		{2 * time.Second, &here, blender},
		{40 * time.Second, nil, blender},          // nothing is known meanwhile
		{2 * time.Second, &silent, blender},       // nor here
		{2 * time.Second, &gone, ""},              // the cool-down is over
		{2 * time.Second, &game, ""},              // may be a list that lags behind
		{2 * time.Second, &game, ""},              //
		{2 * time.Second, &gone, ""},              // it was
		{2 * time.Second, &game, ""},              //
		{2 * time.Second, &game, ""},              //
		{2 * time.Second, &game, "a game"},        // it is not
		{blindTimeout - time.Second, nil, "game"}, // the tool fell silent
		{time.Second, nil, ""},
	} {
		now = now.Add(step.after)
		var each []gpu.Reading
		if step.r != nil {
			each = []gpu.Reading{*step.r}
		}
		got := o.update(now, each, nil, of)["GPU-1"]
		if step.want == "" && got != "" || !contains(got, step.want) {
			t.Fatalf("look %d: %q, want %q", i, got, step.want)
		}
	}
	if len(o.uses) != 0 {
		t.Error("unused devices are still tracked")
	}
}
