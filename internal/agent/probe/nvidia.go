package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// smiTimeout bounds nvidia-smi, which hangs on some broken drivers.
const smiTimeout = 5 * time.Second

// nvidia asks nvidia-smi. Where that tool is missing there are no devices.
func nvidia(ctx context.Context) ([]muster.GPU, string, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return nil, "", nil //nolint:nilerr // no tool, no devices
	}
	visible, limited := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	gpus, driver, err := askSMI(ctx, path)
	if limited {
		gpus = visibleOnly(gpus, visible)
	}
	return gpus, driver, err
}

func askSMI(ctx context.Context, path string) ([]muster.GPU, string, error) {
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--query-gpu=index,uuid,name,memory.total,driver_version", "--format=csv,noheader,nounits")
	cmd.WaitDelay = time.Second // what it started may hold its output open
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	switch {
	case ctx.Err() != nil:
		return nil, "", fmt.Errorf("GPUs are unknown: nvidia-smi did not answer within %s; the driver may need a reset", smiTimeout)
	case err != nil && !noDevices(string(out)):
		return nil, "", fmt.Errorf("GPUs are unknown: nvidia-smi failed (%w): %s", err, firstLine(string(out)+complaint.String()))
	}
	return parseSMI(string(out))
}

func noDevices(out string) bool { return strings.Contains(out, "No devices were found") }

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// parseSMI reads lines such as
//
//	0, GPU-5c89852c-…, NVIDIA A100-SXM4-40GB, 40960, 550.54.15
//
// with the memory in MiB. A value that a device does not have is [N/A] or [Not
// Supported]. Lines that cannot be read are told in the error; the others count.
func parseSMI(out string) (gpus []muster.GPU, driver string, err error) {
	if noDevices(out) {
		return nil, "", nil
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		gpu, version, bad := parseDevice(line)
		if bad != nil {
			err = errors.Join(err, bad)
			continue
		}
		gpus = append(gpus, gpu)
		driver = version
	}
	return gpus, driver, err
}

func parseDevice(line string) (gpu muster.GPU, driver string, err error) {
	f := strings.Split(line, ",")
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	if len(f) < 5 {
		return gpu, "", fmt.Errorf("a line of nvidia-smi cannot be read: %q", line)
	}
	index, err := strconv.Atoi(f[0])
	if err != nil || index < 0 || f[1] == "" || absent(f[1]) {
		return gpu, "", fmt.Errorf("a GPU without index or UUID is left out: %q", line)
	}
	last := len(f) - 1
	gpu = muster.GPU{UUID: f[1], Index: index, Vendor: "nvidia", Name: strings.Join(f[2:last-1], ", ")}
	if !absent(f[last]) {
		driver = f[last]
	}
	if absent(f[last-1]) {
		return gpu, driver, nil // it shares the machine's memory
	}
	mib, err := strconv.ParseInt(f[last-1], 10, 64)
	if err != nil || mib < 0 || mib > 1<<40 {
		return gpu, "", fmt.Errorf("a GPU with unreadable memory is left out: %q", line)
	}
	gpu.Memory = muster.Size(mib) << 20
	return gpu, driver, nil
}

func absent(v string) bool { return strings.HasPrefix(v, "[") }

// visibleOnly heeds CUDA_VISIBLE_DEVICES as CUDA does: indexes or beginnings of
// UUIDs, and nothing after the first that names no device.
func visibleOnly(gpus []muster.GPU, visible string) []muster.GPU {
	var out []muster.GPU
	for want := range strings.SplitSeq(visible, ",") {
		want = strings.TrimSpace(want)
		i := slices.IndexFunc(gpus, func(g muster.GPU) bool {
			if n, err := strconv.Atoi(want); err == nil {
				return n == g.Index
			}
			return want != "" && strings.HasPrefix(g.UUID, want)
		})
		if i < 0 || slices.Contains(out, gpus[i]) {
			break
		}
		out = append(out, gpus[i])
	}
	return out
}
