import dagre from "@dagrejs/dagre";
import { useComputedColorScheme } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { Background, BackgroundVariant, Controls, Handle, MiniMap, Position, ReactFlow, ReactFlowProvider, useReactFlow, type Edge, type Node, type NodeProps } from "@xyflow/react";
import "@xyflow/react/dist/base.css";
import { Route } from "lucide-react";
import { useEffect, useMemo, type KeyboardEvent } from "react";
import { finished, total, type Job } from "@/api/types";
import { count, duration, words } from "@/ui/format";
import { CountsBar } from "@/ui/Progress";
import { stateColor, StateIcon } from "@/ui/StateBadge";
import { useNow } from "@/ui/time";
import css from "./graph.module.css";
import { neighbour, ran, stateOf, type Stage } from "../model/graph";
import { targetOf } from "./Graph";

const width = 216;
const height = 88;

type StageNode = Node<{ stage: Stage; critical: boolean; open: (s: Stage) => void; move: (from: string, key: string) => boolean }, "stage">;
const nodeTypes = { stage: StageCard };

/** Stages as boxes from left to right; path is the critical one, as JSON. The keyboard moves along the edges. */
export default function Flow(props: { job: Job; stages: readonly Stage[]; path: string }) {
  return (
    <ReactFlowProvider>
      <Canvas {...props} />
    </ReactFlowProvider>
  );
}

function Canvas({ job, stages, path }: { job: Job; stages: readonly Stage[]; path: string }) {
  const scheme = useComputedColorScheme("light");
  const navigate = useNavigate();
  const flow = useReactFlow();
  // The clock makes a new path each second, mostly of the same stages: as a text it is the same.
  const critical = useMemo(() => new Set(JSON.parse(path) as string[]), [path]);
  // The layout only depends on the needs, which never change.
  const shape = JSON.stringify(stages.map((s) => [s.name, s.needs]));
  const places = useMemo(() => layout(JSON.parse(shape) as [string, string[]][]), [shape]);

  const nodes = useMemo((): StageNode[] => {
    const open = (s: Stage) => {
      const target = targetOf(job, s);
      if ("task" in target) void navigate({ to: "/tasks/$task", params: { task: target.task } });
      else void navigate({ to: "/jobs/$job", params: { job: String(job.id) }, search: { tab: "elements", stage: target.stage } });
    };
    const move = (from: string, key: string) => {
      const to = neighbour(stages, from, key);
      if (to === undefined) return false;
      const place = places.at.get(to);
      if (place) void flow.setCenter(place.x + width / 2, place.y + height / 2, { zoom: flow.getZoom(), duration: 150 });
      document.getElementById(`stage-${to}`)?.focus({ preventScroll: true });
      return true;
    };
    return stages.map((stage) => ({
      id: stage.name, type: "stage", position: places.at.get(stage.name) ?? { x: 0, y: 0 }, width, height,
      data: { stage, critical: critical.has(stage.name), open, move },
    }));
  }, [stages, critical, places, job, flow, navigate]);
  const edges = useMemo((): Edge[] => {
    const names = new Set(stages.map((s) => s.name));
    return stages.flatMap((s) =>
      s.needs
        .filter((n) => names.has(n))
        .map((n) => {
          const hot = critical.has(n) && critical.has(s.name);
          return {
            id: `${n}→${s.name}`, source: n, target: s.name, zIndex: hot ? 1 : 0,
            animated: stateOf(s.counts) === "running",
            style: { stroke: hot ? "var(--chart-3)" : "var(--mantine-color-dimmed)", strokeWidth: hot ? 3 : 1.3, opacity: hot ? 1 : 0.65 },
          };
        }),
    );
  }, [stages, critical]);

  useEffect(() => {
    const frame = requestAnimationFrame(() => void flow.fitView({ padding: 0.12, maxZoom: 1.1, minZoom: 0.35 }));
    return () => cancelAnimationFrame(frame);
  }, [flow, shape]);

  return (
    <div className={css.frame} style={{ "--xy-background-color": "transparent", height: Math.max(220, Math.min(620, places.height + 90)) }} data-testid="stage-graph">
      <ReactFlow
        nodes={nodes}
        edges={edges}
        nodeTypes={nodeTypes}
        colorMode={scheme}
        nodesDraggable={false}
        nodesConnectable={false}
        nodesFocusable={false}
        edgesFocusable={false}
        elementsSelectable={false}
        onlyRenderVisibleElements={stages.length > 100}
        minZoom={0.05}
        maxZoom={1.6}
        preventScrolling={false}
        zoomOnScroll={false}
        zoomActivationKeyCode={["Control", "Meta"]}
        fitView
        fitViewOptions={{ padding: 0.12, maxZoom: 1.1 }}
        aria-label="Graph of the stages"
      >
        <Background variant={BackgroundVariant.Dots} gap={18} color="var(--line)" bgColor="transparent" />
        <Controls showInteractive={false} className={css.controls} />
        {stages.length > 25 && <MiniMap pannable zoomable nodeColor={(n) => stateColor(stateOf((n as StageNode).data.stage.counts))} bgColor="var(--card)" maskColor="rgb(128 128 128 / 0.2)" ariaLabel="Overview of the graph" />}
      </ReactFlow>
    </div>
  );
}

function StageCard({ data: { stage, critical, open, move } }: NodeProps<StageNode>) {
  const now = useNow();
  const state = stateOf(stage.counts);
  const time = ran(stage, now);
  const onKeyDown = (e: KeyboardEvent) => {
    if (e.key.startsWith("Arrow") && move(stage.name, e.key)) e.preventDefault();
  };
  const beside = [words(state), ...(critical ? ["on the critical path"] : []), ...(stage.needs.length > 0 ? [`needs ${stage.needs.join(", ")}`] : [])].join(", ");
  return (
    <>
      <Handle type="target" position={Position.Left} className={css.handle} />
      <button type="button" id={`stage-${stage.name}`} className={`${css.card} nodrag nopan`} data-critical={critical || undefined} style={{ "--state": stateColor(state), width, height }} onClick={() => open(stage)} onKeyDown={onKeyDown}>
        <span className={css.cardHead}>
          <StateIcon state={state} size={16} />
          <span className="truncate" style={{ fontWeight: 600 }} title={stage.name}>
            {stage.name}
          </span>
          {critical && <Route size={14} aria-hidden style={{ marginLeft: "auto", flex: "none", color: "var(--chart-3)" }} />}
        </span>
        <span className={css.cardLine}>
          <span className="truncate">{stage.size > 1 ? `${count(stage.size)} tasks` : stage.kind || words(state)}</span>
          <span className="nowrap">{time === undefined ? words(state) : duration(stage.finishedAt ? time : Math.floor(time))}</span>
        </span>
        <CountsBar counts={stage.counts} text={total(stage.counts) > 1 ? `${count(finished(stage.counts))}/${count(stage.size)}` : words(state)} />
        <span className="hidden-visually">{beside}</span>
      </button>
      <Handle type="source" position={Position.Right} className={css.handle} />
    </>
  );
}

function layout(stages: readonly [name: string, needs: readonly string[]][]): { at: Map<string, { x: number; y: number }>; height: number } {
  const g = new dagre.graphlib.Graph().setGraph({ rankdir: "LR", nodesep: 22, ranksep: 64 }).setDefaultEdgeLabel(() => ({}));
  const names = new Set(stages.map(([n]) => n));
  for (const [n] of stages) g.setNode(n, { width, height });
  for (const [n, needs] of stages) for (const need of needs) if (names.has(need)) g.setEdge(need, n);
  dagre.layout(g);
  const at = new Map<string, { x: number; y: number }>();
  let bottom = 0;
  for (const [n] of stages) {
    const node = g.node(n) as { x: number; y: number };
    at.set(n, { x: node.x - width / 2, y: node.y - height / 2 });
    bottom = Math.max(bottom, node.y + height / 2);
  }
  return { at, height: bottom };
}
