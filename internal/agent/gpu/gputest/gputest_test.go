package gputest_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/gpu/gputest"
)

func TestFakeTool(t *testing.T) {
	s := gputest.New(t,
		gputest.GPU{UUID: "GPU-a", Used: 512 << 20, Utilization: 0.5, Processes: []gputest.Process{{PID: 7, Name: "python", Memory: 500 << 20}}},
		gputest.GPU{UUID: "GPU-b", Instances: []gputest.Instance{{UUID: "MIG-c"}}})
	run := func(args ...string) string {
		t.Helper()
		out, _ := exec.CommandContext(t.Context(), "nvidia-smi", args...).CombinedOutput() // its status is what some cases are about
		return string(out)
	}
	csv := "--format=csv,noheader,nounits"
	for _, tc := range []struct{ got, want string }{
		{run("-L"), "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)\nGPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-b)\n  MIG 1g.5gb      Device  0: (UUID: MIG-c)\n"},
		{run("--query-gpu=uuid,memory.used,utilization.gpu", csv), "GPU-a, 512, 50\nGPU-b, 0, [N/A]\n"},
		{run("--query-gpu=uuid,unknown", csv), "Field \"unknown\" is not a valid field to query.\n\n"},
		{run("--query-compute-apps=pid,used_gpu_memory,process_name", csv), "7, 500, python\n"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
	s.Set(gputest.GPU{UUID: "GPU-a", Broken: "[GPU requires reset]"})
	if got := run("--query-gpu=uuid,temperature.gpu", csv); got != "GPU-a, [GPU requires reset]\n" {
		t.Errorf("got %q", got)
	}
	if got := run("-q", "-x"); !strings.Contains(got, "<gpu_temp>GPU requires reset</gpu_temp>") || !strings.Contains(got, "<reset_required>Yes") {
		t.Errorf("got %s", got)
	}
	s.Fail(9, "no driver")
	if got := run("-L"); got != "no driver\n" {
		t.Errorf("got %q", got)
	}
}
