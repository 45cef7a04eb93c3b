/** The logo of Muster: a fleet of machines, one of them dark. */
export function Logo({ size = 26 }: { size?: number }) {
  const at = [6, 13.25, 20.5];
  const dim: Record<string, number> = { "13.25,6": 0.55, "13.25,20.5": 0.3 };
  return (
    <svg viewBox="0 0 32 32" width={size} height={size} aria-hidden>
      <rect width="32" height="32" rx="7" fill="#0b7285" />
      {at.flatMap((y) => at.map((x) => <rect key={`${x},${y}`} x={x} y={y} width="5.5" height="5.5" rx="1.2" fill="#fff" opacity={dim[`${x},${y}`]} />))}
    </svg>
  );
}
