// GPUs on a machine without: the stand-in for nvidia-smi that the tests of package gpu have, with devices that a test changes while it runs.
import { chmodSync, copyFileSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const script = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "internal", "agent", "gpu", "gputest", "smi.sh");
const driver = "550.54.15";
const bus = (i) => `00000000:0${i + 1}:00.0`;

/** A folder with an nvidia-smi; put it first on the PATH of a worker. */
export class SMI {
  constructor(folder, gpus) {
    this.folder = folder;
    mkdirSync(folder, { recursive: true });
    copyFileSync(script, join(folder, "nvidia-smi"));
    chmodSync(join(folder, "nvidia-smi"), 0o755);
    this.set(gpus);
  }

  get path() {
    return this.folder + delimiter + process.env["PATH"];
  }

  /** Devices of {name, memory and used in MiB, utilization 0 to 100, temperature, power, reset: whether the driver asks for a reset}. */
  set(gpus) {
    const devices = gpus.map((g, i) => ({ uuid: `GPU-0000000${i}-0000-4000-8000-000000000000`, name: "NVIDIA A100-SXM4-40GB", memory: 40960, used: 0, utilization: 0, temperature: 40, power: 60, ...g }));
    const table = ["index", "uuid", "name", "memory.total", "driver_version", "pci.bus_id", "utilization.gpu", "memory.used", "temperature.gpu", "power.draw", "power.limit", "ecc.errors.uncorrected.volatile.total"];
    const read = (d, value) => (d.reset ? "[GPU requires reset]" : value);
    this.write("gpus", [table, ...devices.map((d, i) => [i, d.uuid, d.name, d.memory, driver, bus(i), ...[d.utilization, d.used, d.temperature, d.power, 400, 0].map((v) => read(d, v))])].map((r) => r.join("\t")).join("\n"));
    this.write("apps", "gpu_uuid\tpid\tprocess_name\tused_gpu_memory\tused_memory\tname\tgpu_bus_id");
    this.write("list", devices.map((d, i) => `GPU ${i}: ${d.name} (UUID: ${d.uuid})`).join("\n"));
    this.write("pids", `Driver Version : ${driver}\nAttached GPUs : ${devices.length}\n${devices.map((_, i) => `GPU ${bus(i)}\n    Processes                          : None`).join("\n")}`);
    this.write("xml", `<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>${driver}</driver_version>\n<cuda_version>12.4</cuda_version>\n<attached_gpus>${devices.length}</attached_gpus>\n${devices.map(device).join("\n")}\n</nvidia_smi_log>`.replaceAll("><", ">\n<"));
  }

  /** In one step, so that no reader sees half of it. */
  write(name, text) {
    const path = join(this.folder, name);
    writeFileSync(`${path}.new`, `${text}\n`);
    renameSync(`${path}.new`, path);
  }
}

function device(d, i) {
  const read = (value, unit) => (d.reset ? "GPU requires reset" : `${value} ${unit}`);
  return `<gpu id="${bus(i)}"><product_name>${d.name}</product_name><mig_mode><current_mig>Disabled</current_mig></mig_mode><uuid>${d.uuid}</uuid><minor_number>${i}</minor_number>
<gpu_reset_status><reset_required>${d.reset ? "Yes" : "No"}</reset_required></gpu_reset_status>
<fb_memory_usage><total>${d.memory} MiB</total><used>${read(d.used, "MiB")}</used></fb_memory_usage>
<utilization><gpu_util>${read(d.utilization, "%")}</gpu_util></utilization><temperature><gpu_temp>${read(d.temperature, "C")}</gpu_temp></temperature>
<gpu_power_readings><power_draw>${read(d.power, "W")}</power_draw><current_power_limit>400.00 W</current_power_limit></gpu_power_readings></gpu>`;
}
