// The lines to paste for a new worker.

export type System = "linux" | "macos" | "container" | "systemd";

export interface JoinLine {
  readonly title: string;
  readonly text: string;
}

/** Quotes for a POSIX shell, if it must. */
export function quote(s: string): string {
  return /^[\w./:@%+=,-]+$/.test(s) ? s : `'${s.replaceAll("'", `'\\''`)}'`;
}

/** Whether other machines cannot reach a server at this URL. */
export function onlyHere(url: string): boolean {
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname.endsWith(".localhost") || /^127\./.test(hostname) || hostname === "[::1]";
}

export const download = (server: string, token: string, to: string) => `curl -fsS -H "Authorization: Bearer ${token}" -o ${to} "${server}/download/muster?os=$(uname -s | tr A-Z a-z)&arch=$(uname -m)"`;

export function joinLines(system: System, server: string, token: string, name: string): JoinLine[] {
  const named = name ? ` --name ${quote(name)}` : "";
  switch (system) {
    case "linux":
      return [
        { title: "Get the program from this server", text: `${download(server, token, "muster")} && chmod +x muster` },
        { title: "Start the worker", text: `MUSTER_JOIN_TOKEN=${token} ./muster worker --server ${server}${named}` },
      ];
    case "macos":
      return [
        { title: "Build the program (needs Go and the source of Muster)", text: "go build -o muster ./cmd/muster" },
        { title: "Start the worker", text: `MUSTER_JOIN_TOKEN=${token} ./muster worker --server ${server}${named}` },
      ];
    case "container":
      return [
        { title: "Get the program from this server", text: `${download(server, token, "muster")} && chmod +x muster` },
        {
          title: "Start the worker in a container that keeps its data in a volume",
          text: `docker run -d --name muster-worker --restart unless-stopped --network host --gpus all \\
  -e MUSTER_JOIN_TOKEN=${token} -v "$PWD/muster:/usr/local/bin/muster:ro" -v muster-worker:/data \\
  debian:stable-slim muster worker --server ${server} --data /data${named}`,
        },
      ];
    case "systemd":
      return [
        {
          title: "Install the program and the join token, as root",
          text: `${download(server, token, "/usr/local/bin/muster")} && chmod 755 /usr/local/bin/muster
install -d -m 700 /etc/muster && (umask 077; echo ${token} > /etc/muster/join-token)`,
        },
        {
          title: "Install and start the service (needs systemd 254 or newer)",
          text: `cat > /etc/systemd/system/muster-worker.service <<'END'
[Unit]
Description=Muster worker
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/local/bin/muster worker --server ${server} --token-file /etc/muster/join-token --data /var/lib/muster${named}
ExecReload=/bin/kill -USR2 $MAINPID
KillMode=process
Delegate=yes
DelegateSubgroup=main
Restart=always
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload && systemctl enable --now muster-worker`,
        },
      ];
  }
}
