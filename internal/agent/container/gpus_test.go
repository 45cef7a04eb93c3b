package container

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// No GPU is needed here: what is held is that the engine is asked in the documented form, which
// is that of "docker run --gpus" and of "docker run --device vendor/class=name".

// recordingEngine is an engine that keeps what it was asked to create.
func recordingEngine(t *testing.T) (host string, asked func() map[string]any) {
	t.Helper()
	var body []byte
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(q.URL.Path, "/containers/create") {
			body, _ = io.ReadAll(q.Body)
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"Id": "c0ffee"}`))
		}
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return "unix://" + l.Addr().String(), func() map[string]any {
		m := map[string]any{}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return m
	}
}

func device(vendor, uuid string, index int, bus string) gpu.Device {
	return gpu.Device{GPU: muster.GPU{Vendor: vendor, UUID: uuid, Index: index}, Bus: bus}
}

var (
	nvidiaA = device("nvidia", "GPU-336c5a8a-839f-69a8-08cf-e3fdcd01e019", 0, "")
	nvidiaB = device("nvidia", "GPU-5b2c9d11-0000-1111-2222-333344445555", 1, "")
)

func TestNVIDIADevicesAreRequestedByUUID(t *testing.T) {
	host, asked := recordingEngine(t)
	engine, err := docker.Open(host)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	c := &Containers{cfg: Config{Devices: func() []gpu.Device { return []gpu.Device{nvidiaA, nvidiaB} }}}
	cdi := t.TempDir()
	if err := os.WriteFile(filepath.Join(cdi, "nvidia.yaml"), []byte("kind: nvidia.com/gpu\ndevices:\n    - name: "+nvidiaA.UUID+"\n    - name: \"1\"\n    - name: all\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	toolkit := &docker.Info{Name: "docker", Version: "20.10.24", Runtimes: []string{"nvidia", "runc"}}
	for name, tc := range map[string]struct {
		about *docker.Info
		gpus  []string
		want  string // the DeviceRequests
		shown string
	}{
		"by the toolkit": {
			toolkit, []string{nvidiaB.UUID, nvidiaA.UUID},
			`[{"Driver":"nvidia","Count":0,"DeviceIDs":["` + nvidiaB.UUID + `","` + nvidiaA.UUID + `"],"Capabilities":[["gpu"]],"Options":null}]`,
			nvidiaB.UUID + "," + nvidiaA.UUID,
		},
		"by CDI": {
			&docker.Info{Name: "docker", Version: "28.3.2", CDI: []string{cdi}}, []string{nvidiaA.UUID, nvidiaB.UUID},
			`[{"Driver":"cdi","Count":0,"DeviceIDs":["nvidia.com/gpu=` + nvidiaA.UUID + `","nvidia.com/gpu=1"],"Capabilities":null,"Options":null}]`, "void",
		},
		"by Podman": {
			&docker.Info{Name: "podman", Version: "5.4.0", CDI: []string{"/nowhere", cdi}}, []string{nvidiaA.UUID},
			`[{"Driver":"cdi","Count":0,"DeviceIDs":["nvidia.com/gpu=` + nvidiaA.UUID + `"],"Capabilities":null,"Options":null}]`, "void",
		},
		"none": {toolkit, nil, `null`, "void"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &docker.ContainerSpec{Name: "x", Image: "x", Env: []string{"NVIDIA_VISIBLE_DEVICES=all", "A=b"}}
			if err := c.addDevices(p, &muster.Grant{GPUs: tc.gpus}, tc.about); err != nil {
				t.Fatal(err)
			}
			if _, err := engine.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			body := asked()
			var want any
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if got := body["HostConfig"].(map[string]any)["DeviceRequests"]; !reflect.DeepEqual(got, want) {
				t.Errorf("it asks for %v: want %v", got, want)
			}
			if env := body["Env"]; !reflect.DeepEqual(env, []any{"A=b", "NVIDIA_VISIBLE_DEVICES=" + tc.shown}) {
				t.Errorf("its environment is %v: want %s shown", env, tc.shown)
			}
		})
	}
	for name, about := range map[string]*docker.Info{
		"nvidia-ctk runtime configure": {Name: "docker", Version: "28.3.2"},
		"restart Docker":               {Name: "docker", Version: "24.0.1", CDI: []string{cdi}},
		"Podman 5 or newer":            {Name: "podman", Version: "4.9.3", CDI: []string{cdi}},
		"nvidia-ctk cdi generate":      {Name: "podman", Version: "5.4.0", CDI: []string{t.TempDir()}},
	} {
		t.Setenv("PATH", t.TempDir()) // without the toolkit's hook
		err := c.addDevices(&docker.ContainerSpec{}, &muster.Grant{GPUs: []string{nvidiaA.UUID}}, about)
		wantTaskError(t, err, muster.Dependency, name)
	}
}

func TestAMDAndIntelDevicesAreDeviceFiles(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"dev/kfd", "dev/dri/renderD128", "dev/dri/renderD129"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), nil, 0o660); err != nil {
			t.Fatal(err)
		}
	}
	for bus, node := range map[string]string{"0000:03:00.0": "renderD128", "0000:43:00.0": "renderD129"} {
		if err := os.MkdirAll(filepath.Join(root, "sys/bus/pci/devices", bus, "drm", node), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := &docker.ContainerSpec{Env: []string{"ROCR_VISIBLE_DEVICES=GPU-1,GPU-2", "A=b"}}
	if err := addDeviceFiles(p, "amd", []gpu.Device{device("amd", "GPU-2", 1, "0000:43:00.0"), device("amd", "GPU-1", 0, "0000:03:00.0")}, root); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/dev/kfd", "/dev/dri/renderD129", "/dev/dri/renderD128"}; !slices.Equal(p.Devices, want) {
		t.Errorf("the devices are %v: want %v", p.Devices, want)
	}
	if want := []string{"A=b", "ROCR_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=0,1"}; !slices.Equal(p.Env, want) {
		t.Errorf("the environment is %v: want %v", p.Env, want)
	}
	p = &docker.ContainerSpec{}
	if err := addDeviceFiles(p, "intel", []gpu.Device{device("intel", "x", 0, "0000:03:00.0")}, root); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(p.Devices, []string{"/dev/dri/renderD128"}) || !slices.Equal(p.Env, []string{"ZE_AFFINITY_MASK=0"}) {
		t.Errorf("the devices are %v with %v", p.Devices, p.Env)
	}
	wantTaskError(t, addDeviceFiles(&docker.ContainerSpec{}, "intel", []gpu.Device{device("intel", "y", 0, "0000:99:00.0")}, root), muster.Dependency, "load its driver")
	wantTaskError(t, addDeviceFiles(&docker.ContainerSpec{}, "amd", nil, t.TempDir()), muster.Dependency, "/dev/kfd")
	c := &Containers{cfg: Config{Devices: func() []gpu.Device { return []gpu.Device{device("apple", "m", 0, "")} }}}
	wantTaskError(t, c.addDevices(&docker.ContainerSpec{}, &muster.Grant{GPUs: []string{"m"}}, &docker.Info{}), muster.Dependency, "isolation: process")
	wantTaskError(t, c.addDevices(&docker.ContainerSpec{}, &muster.Grant{GPUs: []string{"gone"}}, &docker.Info{}), muster.WorkerInternal, "gone")
}
