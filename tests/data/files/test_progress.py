from trellisnet.data.files.progress import progress


def work():
    with progress("working hard", total=10, unit="things") as bar:
        bar.add(3)
        bar.restart()
        bar.set_total(20)
        bar.add(20)


def test_a_terminal_shows_a_bar(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    work()
    out, err = capsys.readouterr()
    assert out == ""
    assert "working hard" in err
    assert "20/20" in err


def test_without_a_terminal_there_is_no_output(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    work()
    assert capsys.readouterr() == ("", "")
