package probe

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// cpuInfo is the content of /proc/cpuinfo. Its format and completeness depend on the architecture.
type cpuInfo struct {
	model    string
	features []string
	threads  int
	sockets  map[string]bool
	cores    map[[2]string]bool // by socket and number
}

func parseCPUInfo(text string) cpuInfo {
	info := cpuInfo{sockets: map[string]bool{}, cores: map[[2]string]bool{}}
	var flags, maker, part, board, socket string
	parts := map[string]bool{} // big and little cores differ
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(name) {
		case "processor":
			if strings.Trim(value, "0123456789") == "" { // 32-bit ARM has the model here too
				info.threads++
			}
		case "model name", "cpu model", "uarch", "cpu": // cpu: POWER
			info.model = cmp.Or(info.model, value)
		case "flags", "Features", "isa":
			flags = cmp.Or(flags, value)
		case "CPU implementer":
			maker = value
		case "CPU part":
			if part = armName(maker, value); part != "" {
				parts[part] = true
			}
		case "Model", "Hardware":
			board = cmp.Or(board, value)
		case "physical id":
			socket = value
			info.sockets[socket] = true
		case "core id":
			info.cores[[2]string{socket, value}] = true
		}
	}
	if len(parts) > 0 && (info.model == "" || strings.HasPrefix(info.model, "ARMv")) {
		info.model = strings.Join(slices.Sorted(maps.Keys(parts)), " + ")
	}
	info.model = cmp.Or(info.model, board)
	info.features = features(flags)
	return info
}

// armNames are the cores that are common in machines that run jobs, by implementer and part: see the MIDR_EL1 register in ARM's
// manuals, and arch/arm64/include/asm/cputype.h.
var armNames = map[string]string{
	"0x41/0xd03": "Cortex-A53", "0x41/0xd05": "Cortex-A55", "0x41/0xd07": "Cortex-A57", "0x41/0xd08": "Cortex-A72",
	"0x41/0xd09": "Cortex-A73", "0x41/0xd0b": "Cortex-A76", "0x41/0xd0c": "Neoverse-N1", "0x41/0xd40": "Neoverse-V1",
	"0x41/0xd41": "Cortex-A78", "0x41/0xd42": "Cortex-A78AE", "0x41/0xd44": "Cortex-X1", "0x41/0xd46": "Cortex-A510",
	"0x41/0xd49": "Neoverse-N2", "0x41/0xd4f": "Neoverse-V2", "0x41/0xd84": "Neoverse-V3", "0x41/0xd8e": "Neoverse-N3",
	"0x41/0xd85": "Cortex-X925", "0x41/0xd87": "Cortex-A725", "0x46/0x001": "A64FX", "0x48/0xd01": "Kunpeng 920",
	"0x4e/0x004": "Carmel", "0xc0/0xac3": "Ampere-1", "0xc0/0xac4": "Ampere-1A", "0x61/0x022": "Apple M1", "0x61/0x023": "Apple M1",
}

func armName(implementer, part string) string { return armNames[implementer+"/"+strings.ToLower(part)] }

// featureNames are the instruction sets that jobs ask for: the kernel's name, and the name here.
var featureNames = []struct{ flag, name string }{
	{"sse4_2", "sse4_2"}, {"avx", "avx"}, {"f16c", "f16c"}, {"fma", "fma"}, {"avx2", "avx2"}, {"avx_vnni", "avx_vnni"},
	{"avx512f", "avx512"}, {"avx512bw", "avx512bw"}, {"avx512dq", "avx512dq"}, {"avx512vl", "avx512vl"},
	{"avx512_vnni", "avx512_vnni"}, {"avx512_bf16", "avx512_bf16"}, {"avx512_fp16", "avx512_fp16"},
	{"amx_tile", "amx"}, {"amx_bf16", "amx_bf16"}, {"amx_int8", "amx_int8"}, {"sha_ni", "sha"},
	{"asimd", "neon"}, {"neon", "neon"}, {"asimdhp", "fp16"}, {"asimddp", "dotprod"}, {"bf16", "bf16"}, {"i8mm", "i8mm"},
	{"sve", "sve"}, {"sve2", "sve2"}, {"sme", "sme"}, {"sha2", "sha"}, {"altivec", "altivec"},
}

// features returns the names of the flags in featureNames.
func features(flags string) []string {
	has := map[string]bool{}
	for flag := range strings.FieldsSeq(flags) {
		has[flag] = true
		// RISC-V writes letters, such as rv64imafdcv_zicsr.
		if isa, _, _ := strings.Cut(flag, "_"); strings.HasPrefix(isa, "rv64") && strings.Contains(isa[len("rv64"):], "v") {
			has["rvv"] = true
		}
	}
	found := []string{}
	for _, f := range featureNames {
		if has[f.flag] && !slices.Contains(found, f.name) {
			found = append(found, f.name)
		}
	}
	if has["rvv"] {
		found = append(found, "rvv")
	}
	return found
}
