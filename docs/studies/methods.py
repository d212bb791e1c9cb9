"""Write the study once more for each method: one_expert.toml, exact.toml, refined.toml and shared.toml."""

from pathlib import Path

study = Path("study.toml").read_text(encoding="utf-8")
exact = '[method]\nname = "FederatedEM"\n'
texts = {
    "one_expert": f"{study.replace('experts = [2]', 'experts = [1]')}\n{exact}",
    "exact": f"{study}\n{exact}",
    "refined": f'{study}\n[method]\nname = "OneShot"\nrefine = 1\n',
    "shared": f'{study}\n[method]\nname = "SharedCentre"\n',
}
for name, text in texts.items():
    Path(f"{name}.toml").write_text(text, encoding="utf-8")
