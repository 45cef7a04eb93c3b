package containertest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/distribution/reference"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/testkit"
)

// ImageSpec describes an image that is built from scratch.
type ImageSpec struct {
	Files   map[string]string // local files by path in the image; executable
	Texts   map[string]string // contents by path in the image; executable
	Links   map[string]string // targets of links by path in the image
	Folders []string          // writable for every user

	Entrypoint, Cmd []string
	User, Workdir   string
	Env             []string
	Volumes         []string
	StopSignal      string
}

// writeTar returns a tar file with what write puts into it, the same bytes for the same files.
func writeTar(tb testing.TB, write func(put func(h tar.Header, contents []byte))) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	write(func(h tar.Header, contents []byte) {
		h.Name, h.Size = strings.TrimPrefix(h.Name, "/"), int64(len(contents))
		testkit.NoError(tb, w.WriteHeader(&h))
		_, err := w.Write(contents)
		testkit.NoError(tb, err)
	})
	testkit.NoError(tb, w.Close())
	return buf.Bytes()
}

// layer returns the image's files as a tar file.
func (b ImageSpec) layer(tb testing.TB) []byte {
	tb.Helper()
	return writeTar(tb, func(put func(h tar.Header, contents []byte)) {
		for _, dir := range b.parents() {
			put(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
		}
		for _, dir := range b.Folders {
			put(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o1777}, nil)
		}
		for _, name := range slices.Sorted(maps.Keys(b.Files)) {
			contents, err := os.ReadFile(b.Files[name])
			testkit.NoError(tb, err)
			put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, contents)
		}
		for _, name := range slices.Sorted(maps.Keys(b.Texts)) {
			put(tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755}, []byte(b.Texts[name]))
		}
		for _, name := range slices.Sorted(maps.Keys(b.Links)) {
			put(tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: b.Links[name], Mode: 0o777}, nil)
		}
	})
}

// parents returns the folders above the image's files, each after its own parent.
func (b ImageSpec) parents() []string {
	dirs := map[string]bool{}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(b.Files)), slices.Collect(maps.Keys(b.Texts)), slices.Collect(maps.Keys(b.Links)), b.Folders) {
		for dir := path.Dir(path.Join("/", name)); dir != "/"; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// config returns the image's configuration in the format of the OCI image specification.
func (b ImageSpec) config(tb testing.TB, layer []byte) []byte {
	tb.Helper()
	volumes := map[string]struct{}{}
	for _, v := range b.Volumes {
		volumes[v] = struct{}{}
	}
	return encode(tb, map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"Entrypoint": b.Entrypoint, "Cmd": b.Cmd, "User": b.User, "WorkingDir": b.Workdir, "Env": b.Env,
			"Volumes": volumes, "StopSignal": b.StopSignal,
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
}

func encode(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	testkit.NoError(tb, err)
	return b
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// LoadImage loads an image into the engine at host, and removes it after the test.
func LoadImage(tb testing.TB, host, name string, b ImageSpec) string {
	tb.Helper()
	loadImage(tb, host, name, b)
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		api, err := client.New(client.WithHost(host))
		if err != nil {
			return
		}
		defer api.Close()
		_, _ = api.ImageRemove(ctx, name, client.ImageRemoveOptions{Force: true}) // the engine may be gone
	})
	return name
}

// loadImage loads an image in the format of docker save.
func loadImage(tb testing.TB, host, name string, b ImageSpec) {
	tb.Helper()
	layer := b.layer(tb)
	full, err := reference.ParseDockerRef(name) // a short one would be localhost/… with Podman
	testkit.NoError(tb, err)
	manifest := encode(tb, []map[string]any{{"Config": "config.json", "RepoTags": []string{full.String()}, "Layers": []string{"layer.tar"}}})
	archive := writeTar(tb, func(put func(h tar.Header, contents []byte)) {
		put(tar.Header{Typeflag: tar.TypeReg, Name: "layer.tar", Mode: 0o644}, layer)
		put(tar.Header{Typeflag: tar.TypeReg, Name: "config.json", Mode: 0o644}, b.config(tb, layer))
		put(tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json", Mode: 0o644}, manifest)
	})
	res, err := API(tb, host).ImageLoad(tb.Context(), bytes.NewReader(archive))
	if err != nil {
		tb.Fatalf("image %s: %v", name, err)
	}
	defer res.Close()
	output, err := io.ReadAll(res)
	if err != nil || strings.Contains(string(output), `"error"`) {
		tb.Fatalf("image %s: %v, the engine says %s", name, err, output)
	}
}

// ShellImage is an image with a shell and the usual tools in it: /bin/busybox under all of its names. It
// has the users root and user (1000:1000), and a /tmp. Without a static
// busybox on this machine the test skips.
func ShellImage(tb testing.TB) ImageSpec {
	tb.Helper()
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		tb.Skip("no busybox for images: scripts/need busybox installs it")
	}
	f, err := elf.Open(busybox)
	if err != nil {
		tb.Skipf("busybox is no program for images: %v", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			tb.Skip("the busybox of this machine is not static, and has no use in images: scripts/need busybox installs one that is")
		}
	}
	names, err := exec.CommandContext(tb.Context(), busybox, "--list").Output()
	testkit.NoError(tb, err)
	b := ImageSpec{
		Files: map[string]string{"/bin/busybox": busybox},
		Links: map[string]string{},
		Texts: map[string]string{
			"/etc/passwd": "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n",
			"/etc/group":  "root:x:0:\nuser:x:1000:\n",
		},
		Folders: []string{"/tmp", "/root", "/home/user"},
		Cmd:     []string{"sh"},
	}
	for name := range strings.FieldsSeq(string(names)) {
		if name != "busybox" {
			b.Links["/bin/"+name] = "busybox"
		}
	}
	return b
}

// LoadBusybox returns the name of an image of a Shell in the engine at host. It is
// made once for each engine and stays there.
func LoadBusybox(tb testing.TB, host string) string {
	tb.Helper()
	b := ShellImage(tb)
	name := "muster-test/busybox:" + digest(b.layer(tb))[7:19]
	if _, err := API(tb, host).ImageInspect(tb.Context(), name); err != nil {
		loadImage(tb, host, name, b)
	}
	return name
}
