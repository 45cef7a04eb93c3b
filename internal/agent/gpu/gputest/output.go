package gputest

import (
	"fmt"
	"html"
	"strconv"
	"strings"
)

// list is what nvidia-smi -L prints.
func list(gpus []GPU) string {
	if len(gpus) == 0 {
		return "No devices found.\n"
	}
	var b strings.Builder
	for i, g := range gpus {
		fmt.Fprintf(&b, "GPU %d: %s (UUID: %s)\n", i, g.Name, g.UUID)
		for j, p := range g.Instances {
			fmt.Fprintf(&b, "  MIG %-11s Device %2d: (UUID: %s)\n", p.Profile, j, p.UUID)
		}
	}
	return b.String()
}

// pids is what nvidia-smi -q -d PIDS prints.
func pids(gpus []GPU) string {
	var b strings.Builder
	row := func(depth int, name, value string) {
		fmt.Fprintf(&b, "%s%-*s : %s\n", strings.Repeat("    ", depth), 34-4*depth, name, value)
	}
	b.WriteString("\n==============NVSMI LOG==============\n\n")
	row(0, "Timestamp", "Fri May 10 12:00:00 2024")
	row(0, "Driver Version", driver)
	row(0, "CUDA Version", cuda)
	fmt.Fprintf(&b, "\nAttached GPUs                      : %d\n", len(gpus))
	for i := range gpus {
		fmt.Fprintf(&b, "GPU %s\n", bus(i))
		all := gpus[i].allProcesses()
		if len(all) == 0 {
			row(1, "Processes", "None")
			continue
		}
		b.WriteString("    Processes\n")
		for _, p := range all {
			row(2, "GPU instance ID", p.gi)
			row(2, "Compute instance ID", p.ci)
			row(2, "Process ID", strconv.Itoa(p.PID))
			row(3, "Type", p.kind())
			row(3, "Name", p.Name)
			row(3, "Used GPU Memory", mib(p.Memory)+" MiB")
		}
	}
	return b.String()
}

// xmlLog is what nvidia-smi -q -x prints, as far as anybody reads it.
func xmlLog(gpus []GPU) string {
	var b strings.Builder
	depth := 0
	line := func(format string, args ...any) {
		b.WriteString(strings.Repeat("\t", depth))
		fmt.Fprintf(&b, format+"\n", args...)
	}
	openElement := func(name string) { line("<%s>", name); depth++ }
	closeElement := func(name string) { depth--; line("</%s>", name) }
	leaf := func(name, value string) { line("<%s>%s</%[1]s>", name, html.EscapeString(value)) }

	b.WriteString("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n")
	openElement("nvidia_smi_log")
	leaf("timestamp", "Fri May 10 12:00:00 2024")
	leaf("driver_version", driver)
	leaf("cuda_version", cuda)
	leaf("attached_gpus", strconv.Itoa(len(gpus)))
	for i := range gpus {
		g := &gpus[i]
		// A value with its unit, or what stands for it.
		val := func(v, unit string) string {
			if v = strings.Trim(v, "[]"); v == "" || v[0] < '0' || v[0] > '9' {
				return v
			}
			return v + " " + unit
		}
		line("<gpu id=%q>", bus(i))
		depth++
		leaf("product_name", g.Name)
		mode := "Disabled"
		if len(g.Instances) > 0 {
			mode = "Enabled"
		}
		openElement("mig_mode")
		leaf("current_mig", mode)
		leaf("pending_mig", mode)
		closeElement("mig_mode")
		openElement("mig_devices")
		if len(g.Instances) == 0 {
			line("None")
		}
		for j, p := range g.Instances {
			openElement("mig_device")
			leaf("index", strconv.Itoa(j))
			leaf("gpu_instance_id", strconv.Itoa(j+1))
			leaf("compute_instance_id", "0")
			openElement("ecc_error_count")
			openElement("volatile_count")
			leaf("sram_uncorrectable", "0")
			closeElement("volatile_count")
			closeElement("ecc_error_count")
			openElement("fb_memory_usage")
			leaf("total", mib(p.Memory)+" MiB")
			leaf("used", mib(p.Used)+" MiB")
			closeElement("fb_memory_usage")
			closeElement("mig_device")
		}
		closeElement("mig_devices")
		leaf("uuid", g.UUID)
		leaf("minor_number", strconv.Itoa(i))
		openElement("gpu_reset_status")
		reset := "No"
		if strings.Contains(g.Broken, "reset") {
			reset = "Yes"
		}
		leaf("reset_required", reset)
		closeElement("gpu_reset_status")
		openElement("fb_memory_usage")
		leaf("total", mib(g.Memory)+" MiB")
		leaf("used", val(g.orBroken(mib(g.Used)), "MiB"))
		closeElement("fb_memory_usage")
		openElement("utilization")
		leaf("gpu_util", val(g.utilization(), "%"))
		closeElement("utilization")
		openElement("ecc_errors")
		openElement("volatile")
		leaf("sram_uncorrectable", "0")
		leaf("dram_uncorrectable", strings.Trim(g.ecc(), "[]"))
		closeElement("volatile")
		closeElement("ecc_errors")
		openElement("temperature")
		leaf("gpu_temp", val(g.temperature(), "C"))
		closeElement("temperature")
		openElement("gpu_power_readings")
		leaf("power_draw", val(g.power(), "W"))
		leaf("current_power_limit", val(g.orBroken("400.00"), "W"))
		closeElement("gpu_power_readings")
		openElement("processes")
		for _, p := range g.allProcesses() {
			openElement("process_info")
			leaf("gpu_instance_id", p.gi)
			leaf("compute_instance_id", p.ci)
			leaf("pid", strconv.Itoa(p.PID))
			leaf("type", p.kind())
			leaf("process_name", p.Name)
			leaf("used_memory", mib(p.Memory)+" MiB")
			closeElement("process_info")
		}
		closeElement("processes")
		closeElement("gpu")
	}
	closeElement("nvidia_smi_log")
	return b.String()
}
