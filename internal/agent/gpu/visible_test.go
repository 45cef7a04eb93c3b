package gpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

func indexes(all []Device) (at []string) {
	for _, d := range all {
		at = append(at, d.UUID)
	}
	return at
}

func TestVisibleNVIDIA(t *testing.T) {
	all := []Device{
		{GPU: muster.GPU{UUID: "GPU-aa11", Index: 0}},
		{GPU: muster.GPU{UUID: "GPU-ab22", Index: 1}},
		{GPU: muster.GPU{UUID: "MIG-cc33", Index: 2, MIG: "1g.5gb", Parent: "GPU-dd44"}, Instance: "1/0"},
		{GPU: muster.GPU{UUID: "MIG-cc55", Index: 2, MIG: "1g.5gb", Parent: "GPU-dd44"}, Instance: "2/0"},
	}
	every := "GPU-aa11 GPU-ab22 MIG-cc33 MIG-cc55"
	for _, tc := range []struct{ env, want string }{
		{"X=", every},
		{"CUDA_VISIBLE_DEVICES=", ""},
		{"CUDA_VISIBLE_DEVICES=-1", ""},
		{"CUDA_VISIBLE_DEVICES=none", ""},
		{"CUDA_VISIBLE_DEVICES=NoDevFiles", ""},
		{"CUDA_VISIBLE_DEVICES=0", "GPU-aa11"},
		{"CUDA_VISIBLE_DEVICES=1,0", "GPU-ab22 GPU-aa11"},
		{"CUDA_VISIBLE_DEVICES= 1 , GPU-aa", "GPU-ab22 GPU-aa11"},
		{"CUDA_VISIBLE_DEVICES=0,7,1", "GPU-aa11"},
		{"CUDA_VISIBLE_DEVICES=0,-1,1", "GPU-aa11"},
		{"CUDA_VISIBLE_DEVICES=0,0,1", "GPU-aa11"},
		{"CUDA_VISIBLE_DEVICES=GPU-ab22", "GPU-ab22"},
		{"CUDA_VISIBLE_DEVICES=gpu-AB22", "GPU-ab22"},
		{"CUDA_VISIBLE_DEVICES=GPU-a", ""}, // which of two?
		{"CUDA_VISIBLE_DEVICES=GPU-", ""},
		{"CUDA_VISIBLE_DEVICES=2", "MIG-cc33 MIG-cc55"},
		{"CUDA_VISIBLE_DEVICES=MIG-cc55", "MIG-cc55"},
		{"CUDA_VISIBLE_DEVICES=GPU-dd44", "MIG-cc33 MIG-cc55"},
		{"CUDA_VISIBLE_DEVICES=MIG-GPU-dd44/2/0", "MIG-cc55"},
		{"NVIDIA_VISIBLE_DEVICES=all", every},
		{"NVIDIA_VISIBLE_DEVICES=void", every},
		{"NVIDIA_VISIBLE_DEVICES=", every},
		{"NVIDIA_VISIBLE_DEVICES=none", ""},
		{"NVIDIA_VISIBLE_DEVICES=/var/run/nvidia-container-devices", every},
		{"NVIDIA_VISIBLE_DEVICES=GPU-ab22", "GPU-ab22"},
		{"NVIDIA_VISIBLE_DEVICES=1", "GPU-ab22"},
		{"NVIDIA_VISIBLE_DEVICES=4,5,6,7", every}, // a container that was given these four
		{"NVIDIA_VISIBLE_DEVICES=MIG-cc33,GPU-aa11", "GPU-aa11 MIG-cc33"},
		{"NVIDIA_VISIBLE_DEVICES=1,2 CUDA_VISIBLE_DEVICES=0,1", ""}, // 0 is not there
		{"NVIDIA_VISIBLE_DEVICES=1,2 CUDA_VISIBLE_DEVICES=1", "GPU-ab22"},
	} {
		shown, notes := bare(t, strings.Split(tc.env, " ")...).visibleNVIDIA(all)
		if strings.HasPrefix(tc.env, "CUDA_VISIBLE_DEVICES= ") {
			shown, notes = bare(t, tc.env).visibleNVIDIA(all)
		}
		if got := strings.Join(indexes(shown), " "); got != tc.want || len(notes) > 0 {
			t.Errorf("%s shows %q with the notes %q, want %q", tc.env, got, notes, tc.want)
		}
	}
	all[1].Name = "another"
	if _, notes := bare(t, "CUDA_VISIBLE_DEVICES=0").visibleNVIDIA(all); len(notes) != 1 || !strings.Contains(notes[0], "CUDA_DEVICE_ORDER=PCI_BUS_ID") {
		t.Errorf("indexes of models that differ: notes %q", notes)
	}
	for _, env := range [][]string{{"CUDA_VISIBLE_DEVICES=0", "CUDA_DEVICE_ORDER=PCI_BUS_ID"}, {"CUDA_VISIBLE_DEVICES=GPU-aa11"}} {
		if _, notes := bare(t, env...).visibleNVIDIA(all); len(notes) > 0 {
			t.Errorf("%q: notes %q", env, notes)
		}
	}
}

func TestVisibleAMDAndIntel(t *testing.T) {
	all := []Device{{GPU: muster.GPU{UUID: "GPU-0a"}}, {GPU: muster.GPU{UUID: "GPU-0b"}}, {GPU: muster.GPU{UUID: "GPU-0c"}}}
	for _, tc := range []struct {
		env    string
		beside bool
		want   string
	}{
		{"X=", false, "GPU-0a GPU-0b GPU-0c"},
		{"ROCR_VISIBLE_DEVICES=", false, ""},
		{"ROCR_VISIBLE_DEVICES=-1", false, ""},
		{"ROCR_VISIBLE_DEVICES=2,0", false, "GPU-0c GPU-0a"},
		{"ROCR_VISIBLE_DEVICES=GPU-0B", false, "GPU-0b"},
		{"ROCR_VISIBLE_DEVICES=GPU-0", false, ""},
		{"HIP_VISIBLE_DEVICES=1", false, "GPU-0b"},
		{"ROCR_VISIBLE_DEVICES=2,0 HIP_VISIBLE_DEVICES=0", false, "GPU-0c"},
		{"CUDA_VISIBLE_DEVICES=1", false, "GPU-0b"},
		{"CUDA_VISIBLE_DEVICES=1", true, "GPU-0a GPU-0b GPU-0c"},
		{"CUDA_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=2", false, "GPU-0c"},
	} {
		if got := strings.Join(indexes(bare(t, strings.Split(tc.env, " ")...).visibleAMD(all, tc.beside)), " "); got != tc.want {
			t.Errorf("%s shows %q, want %q", tc.env, got, tc.want)
		}
	}
	for env, want := range map[string]string{
		"ZE_AFFINITY_MASK=": "GPU-0a GPU-0b GPU-0c", "ZE_AFFINITY_MASK=default": "GPU-0a GPU-0b GPU-0c",
		"ZE_AFFINITY_MASK=1": "GPU-0b", "ZE_AFFINITY_MASK=0.1,2": "GPU-0a GPU-0c", "ZE_AFFINITY_MASK=9": "",
	} {
		if got := strings.Join(indexes(bare(t, env).visibleIntel(all)), " "); got != want {
			t.Errorf("%s shows %q, want %q", env, got, want)
		}
	}
}

func FuzzVisible(f *testing.F) {
	for _, s := range []string{"", "0,1", "GPU-aa11,MIG-cc33", "-1", "MIG-GPU-dd44/2/0", "void", "0:1", ",,,", "all"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		all := []Device{
			{GPU: muster.GPU{UUID: "GPU-aa11", Index: 0}}, {GPU: muster.GPU{UUID: "GPU-ab22", Index: 1}},
			{GPU: muster.GPU{UUID: "MIG-cc33", Index: 2, Parent: "GPU-dd44"}, Instance: "1/0"},
		}
		for _, shown := range [][]Device{selectDevices(all, list, byCUDA), selectDevices(all, list, byPosition), byToolkit(all, list)} {
			got := indexes(shown)
			slices.Sort(got)
			if len(slices.Compact(got)) != len(shown) || len(shown) > len(all) {
				t.Errorf("%q shows a device twice, or one that is not there: %q", list, got)
			}
		}
	})
}
