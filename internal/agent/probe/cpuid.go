package probe

import (
	"runtime"

	"golang.org/x/sys/cpu"
)

// cpuidFeatures queries the processor, for systems whose kernel has no list.
func cpuidFeatures() []string {
	found := []string{}
	for _, f := range []struct {
		has  bool
		name string
	}{
		{cpu.X86.HasSSE42, "sse4_2"}, {cpu.X86.HasAVX, "avx"}, {cpu.X86.HasFMA, "fma"}, {cpu.X86.HasAVX2, "avx2"},
		{cpu.X86.HasAVXVNNI, "avx_vnni"}, {cpu.X86.HasAVX512F, "avx512"}, {cpu.X86.HasAVX512BW, "avx512bw"}, {cpu.X86.HasAVX512DQ, "avx512dq"},
		{cpu.X86.HasAVX512VL, "avx512vl"}, {cpu.X86.HasAVX512VNNI, "avx512_vnni"}, {cpu.X86.HasAVX512BF16, "avx512_bf16"},
		{cpu.X86.HasAMXTile, "amx"}, {cpu.X86.HasAMXBF16, "amx_bf16"}, {cpu.X86.HasAMXInt8, "amx_int8"},
		{runtime.GOARCH == "arm64", "neon"}, // part of the architecture
		{cpu.ARM64.HasASIMDHP, "fp16"}, {cpu.ARM64.HasASIMDDP, "dotprod"}, {cpu.ARM64.HasI8MM, "i8mm"}, {cpu.ARM64.HasSVE, "sve"}, {cpu.ARM64.HasSVE2, "sve2"},
	} {
		if f.has {
			found = append(found, f.name)
		}
	}
	return found
}
