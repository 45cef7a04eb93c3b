package probe

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/internal/agent/procfs"
)

const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,discard
28 27 8:1 / /boot/efi rw,relatime shared:2 - vfat /dev/sda1 rw,fmask=0077
30 27 7:0 / /snap/core/1 ro,nodev,relatime shared:3 - squashfs /dev/loop0 ro
31 27 259:1 / /data rw,relatime shared:4 - xfs /dev/nvme0n1p1 rw
32 27 259:1 /sub /mnt/a\040view rw,relatime shared:4 - xfs /dev/nvme0n1p1 rw
33 27 0:40 / /mnt/nfs rw,relatime shared:5 - nfs4 server:/export rw
34 27 253:0 / /home ro,relatime shared:6 - btrfs /dev/mapper/vg-home ro
35 27 0:41 / /data/tmp rw - tmpfs tmpfs rw
not a line - at all
36 27
`

func TestMounts(t *testing.T) {
	mounts := slices.Collect(procfs.Mounts(mountinfo))
	if len(mounts) != 9 {
		t.Fatalf("%d mounts: %+v", len(mounts), mounts)
	}
	var got []string
	for _, m := range localMounts(mounts) {
		got = append(got, m.Point+" "+m.Source)
	}
	if d := cmp.Diff([]string{"/ /dev/sda2", "/boot/efi /dev/sda1", "/data /dev/nvme0n1p1", "/home /dev/mapper/vg-home"}, got); d != "" {
		t.Error(d)
	}
	for path, want := range map[string]string{
		"/var/lib/muster": "/", "/data": "/data", "/data/muster/worker": "/data", "/data/tmp/x": "/data/tmp", "/database": "/", "/mnt/a view/x": "/mnt/a view",
	} {
		if m := mountOf(mounts, path); m == nil || m.Point != want {
			t.Errorf("%s is on %+v, want %s", path, m, want)
		}
	}
	if m := mountOf(nil, "/x"); m != nil {
		t.Errorf("without mounts %+v", m)
	}
}

func TestDiskKind(t *testing.T) {
	h := fakeHost(map[string]string{
		"sys/block/sda/queue/rotational": "1\n", "sys/block/sda/dev": "8:0\n", "sys/block/sda/sda2/dev": "8:2\n",
		"sys/block/nvme0n1/queue/rotational": "0\n", "sys/block/nvme0n1/nvme0n1p1/dev": "259:1\n",
		"sys/block/dm-0/queue/rotational": "0\n", "sys/block/dm-0/dev": "253:0\n",
		"sys/block/vda/queue/rotational": "1\n", "sys/block/vda/dev": "254:0\n",
		"sys/block/vdb/queue/rotational": "0\n", "sys/block/vdb/dev": "254:16\n",
		"sys/block/xvda/xvda1/dev": "202:1\n",
	})
	for device, want := range map[procfs.Mount]string{
		{Source: "/dev/sda2", Device: "8:2"}:             "hdd",
		{Source: "/dev/nvme0n1p1", Device: "259:1"}:      "ssd",
		{Source: "/dev/mapper/vg-home", Device: "253:0"}: "ssd",
		{Source: "/dev/vda", Device: "254:0"}:            "", // a hypervisor's word
		{Source: "/dev/vdb", Device: "254:16"}:           "ssd",
		{Source: "/dev/xvda1", Device: "202:1"}:          "",
		{Source: "/dev/nvme0n1p1", Device: "0:35"}:       "ssd", // btrfs makes numbers up
		{Source: "overlay", Device: "0:50"}:              "",
		{Source: "/dev/sdz1", Device: "65:145"}:          "",
	} {
		if got := h.diskKind(&device); got != want {
			t.Errorf("%s: %q, want %q", device.Source, got, want)
		}
	}
}

func TestDiskOfThisMachine(t *testing.T) {
	h := thisHost()
	dir := filepath.Join(t.TempDir(), "not", "there")
	d, err := h.disk(t.Context(), dir, h.mounts(t.Context()))
	if err != nil || d.Path != dir || d.Total <= 0 || d.Free > d.Total {
		t.Errorf("%+v, %v", d, err)
	}
	for _, d := range h.disks(t.Context(), h.mounts(t.Context())) {
		if d.Total <= 0 || d.Device == "" || d.Path == "" {
			t.Errorf("%+v", d)
		}
	}
}

// FuzzMounts checks that every parsed mount is found by its path.
func FuzzMounts(f *testing.F) {
	f.Add(mountinfo)
	f.Fuzz(func(t *testing.T, text string) {
		mounts := slices.Collect(procfs.Mounts(text))
		for _, m := range mounts {
			if found := mountOf(mounts, m.Point); found == nil || found.Point != m.Point {
				t.Errorf("%q is on %+v", m.Point, found)
			}
		}
		if all := localMounts(mounts); len(all) > strings.Count(text, "\n")+1 {
			t.Errorf("%d disks", len(all))
		}
	})
}

func TestNetwork(t *testing.T) {
	h := fakeHost(map[string]string{
		"sys/class/net/eth0/device/vendor": "x", "sys/class/net/eth0/speed": "10000\n",
		"sys/class/net/eth1/device/vendor": "x", "sys/class/net/eth1/speed": "-1\n",
		"sys/class/net/wlan0/device/vendor": "x", // without a speed
		"sys/class/net/docker0/speed":       "10000\n",
		"sys/class/net/veth1/speed":         "10000\n",
	})
	const up = net.FlagUp | net.FlagRunning
	for _, tc := range []struct {
		i         net.Interface
		addresses []string
		want      Interface
		shown     bool
	}{
		{net.Interface{Name: "eth0", Flags: up, MTU: 9000}, []string{"10.0.0.5/24"}, Interface{Name: "eth0", Up: true, Addresses: []string{"10.0.0.5/24"}, Speed: 10e9, MTU: 9000}, true},
		{net.Interface{Name: "eth1", MTU: 1500}, []string{}, Interface{Name: "eth1", Addresses: []string{}, MTU: 1500}, true},
		{net.Interface{Name: "wlan0", Flags: net.FlagUp}, []string{}, Interface{Name: "wlan0", Addresses: []string{}}, true}, // no cable, no link
		{net.Interface{Name: "docker0", Flags: up}, []string{"172.17.0.1/16"}, Interface{Name: "docker0", Up: true, Addresses: []string{"172.17.0.1/16"}, Speed: 10e9, Virtual: true}, true},
		{net.Interface{Name: "veth1", Flags: up}, []string{}, Interface{}, false},
		{net.Interface{Name: "lo", Flags: up | net.FlagLoopback}, []string{"127.0.0.1/8"}, Interface{}, false},
	} {
		got, shown := h.networkInterface(&tc.i, tc.addresses)
		if shown != tc.shown || shown && !cmp.Equal(got, tc.want) {
			t.Errorf("%s: %+v, %v", tc.i.Name, got, shown)
		}
	}
}
