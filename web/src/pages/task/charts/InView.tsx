import { useEffect, useRef, useState, type ReactNode } from "react";

/** Mounts its children when they are near the viewport, and reserves their space until then: a run may have hundreds of charts. */
export function InView({ height, children }: { height: number; children: ReactNode }) {
  const host = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const element = host.current;
    if (!element || seen) return;
    const observer = new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && setSeen(true), { rootMargin: "300px" });
    observer.observe(element);
    return () => observer.disconnect();
  }, [seen]);
  return (
    <div ref={host} className="card" style={{ minHeight: height, padding: "10px 12px" }}>
      {seen && children}
    </div>
  );
}
